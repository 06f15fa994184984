"""The levels of isolation to test with, and a Python that an unprivileged user can read.

A grader that runs as root runs its children as another user, who cannot read an interpreter in
root's home. Where that is so, the tests use a copy of it, as `doctor --copy-python` makes one.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from jaxpar.classroom.handout.python_copy import copy_python
from jaxpar.classroom.sandbox import levels
from jaxpar.course.folder import fixed_files

LEVELS = (levels.NAMESPACES, levels.LANDLOCK)

_AT_THE_END = contextlib.ExitStack()
atexit.register(_AT_THE_END.close)


@pytest.fixture(scope="session")
def readable_python() -> str:
    """The path of a Python that every user can run, with all that this one can import."""
    try:
        return _readable_python()
    except ValueError as error:  # a Python that cannot be copied, or a full disk
        pytest.skip(str(error))


@cache
def _readable_python() -> str:
    """Makes the fixture's value once for the process, since each module has its own fixture."""
    try:
        levels.check_readable(levels.user_of(0), levels.needed_paths())
    except levels.LevelUnavailable:
        return str(_AT_THE_END.enter_context(_shared_copy()))
    return sys.executable


@contextmanager
def _shared_copy() -> Iterator[Path]:
    """One copy for all workers of a run: the first makes it, the last removes it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"jaxpar-python-{run}"
    with open(f"{folder}.made", "w") as made, open(f"{folder}.used", "w") as used:
        fcntl.flock(made, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            copy_python(folder, fixed_files())
            (folder / "complete").touch()
        fcntl.flock(used, fcntl.LOCK_SH)
        fcntl.flock(made, fcntl.LOCK_UN)
        try:
            yield folder / "bin" / "python"
        finally:
            fcntl.flock(made, fcntl.LOCK_EX)
            with contextlib.suppress(BlockingIOError):  # other workers still use it
                fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                Path(made.name).unlink()
                Path(used.name).unlink()


@cache
def why_not(level: int, python: str) -> str:
    """Returns why a level cannot be tested on this machine, or an empty text."""
    ask = f"from jaxpar.classroom.sandbox import levels; print(levels.why_not({level}))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.strip()
