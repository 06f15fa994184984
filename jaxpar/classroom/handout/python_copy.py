"""Copies Python and jaxpar to a folder that every user can read, and only its owner can write.

A grader that runs as root gives each submission to an unprivileged user. Where Python is in
somebody's closed home, that user cannot run it; a copy elsewhere needs no change to the home.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from jaxpar.classroom.handout.pinned_versions import needed
from jaxpar.classroom.handout.wheel import wheel
from jaxpar.classroom.sandbox.levels import FIRST_USER, check_readable, environment, user_of

LEAST_FREE_BYTES = 2_000_000_000
OF_NO_USE = ("test", "idlelib", "tkinter", "turtledemo", "ensurepip/_bundled", "__pycache__")
TRIAL = "import jax, jaxpar.grading.worker_replies, jaxpar.classroom.sandbox.levels as levels"
COMMAND = """#!{python}
import sys
sys.path.pop(0)
from jaxpar.cli import main
main()
"""


def copy_python(folder: Path, whole_course: Mapping[str, bytes]) -> Path:
    """Makes the copy, tries it as an unprivileged user, and returns its `jaxpar`.

    Args:
        folder: where it goes; it must not exist.
        whole_course: the files that every course folder has.

    Raises:
        ValueError: that would not be safe, there is too little room, or the copy does not run.
    """
    _check_safe(folder)
    try:
        folder.mkdir()
    except OSError as error:
        raise ValueError(f"doctor: {folder}: {error.strerror}; give a new folder") from None
    try:
        return _copied(folder, whole_course)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _check_safe(folder: Path) -> None:
    """Raises ValueError if others could not read the folder, or could put another in its place."""
    parents = folder.absolute().parents
    for above in parents:
        try:
            status = above.stat()
        except OSError as error:
            raise ValueError(f"doctor: {above}: {error.strerror}; make it first") from None
        mode = stat.S_IMODE(status.st_mode)
        if not mode & stat.S_IXOTH:
            raise ValueError(
                f"doctor: {above} is closed to others; use a folder such as /opt/jaxpar"
            )
        others_write = mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or others_write:
            raise ValueError(
                f"doctor: others can change {above}, and with it what would run as you; use a "
                "folder such as /opt/jaxpar"
            )
    free_bytes = shutil.disk_usage(parents[0]).free
    if free_bytes < LEAST_FREE_BYTES:
        raise ValueError(
            f"doctor: {free_bytes / 1e9:.1f} GB are free on the disk of {folder}; the copy needs "
            f"up to {LEAST_FREE_BYTES / 1e9:.0f} GB"
        )


def _copied(folder: Path, whole_course: Mapping[str, bytes]) -> Path:
    folder.chmod(0o755)
    _run([_base_python(folder), "-m", "venv", "--without-pip", folder])
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    for one in needed().values():
        for file in one.files or []:
            if ".." not in file.parts:
                _copy_file(Path(str(one.locate_file(file))), packages / file)
    zipfile.ZipFile(BytesIO(wheel(whole_course)[1])).extractall(packages)
    python = folder / "bin" / "python"
    command = folder / "bin" / "jaxpar"
    command.write_text(COMMAND.format(python=python.absolute()))
    command.chmod(0o755)
    _run([python, "-m", "compileall", "-q", folder], may_fail=True)  # not all files are Python 3
    _open(folder)
    _run([python, "-P", "-c", TRIAL], user=user_of(0))
    return command


def _base_python(folder: Path) -> Path:
    """Returns the interpreter itself: the one that is there if all can read it, or a copy."""
    python = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    try:
        check_readable(FIRST_USER, [str(python), str(library)])
        return python
    except ValueError:
        base = folder / "base"
    for name in sorted(os.listdir(sys.base_prefix + "/lib")):
        if ".so" in name or name.endswith(".dylib"):
            _copy_file(Path(sys.base_prefix) / "lib" / name, base / "lib" / name)
    left_out = shutil.ignore_patterns(*OF_NO_USE, "site-packages", "config-*")
    inside = base / library.relative_to(sys.base_prefix)
    shutil.copytree(library, inside, ignore=left_out)
    copied = base / "bin" / python.name
    copied.parent.mkdir()
    copied.write_bytes(_with_own_libraries(python.read_bytes()))
    copied.chmod(0o755)
    return copied


def _with_own_libraries(program: bytes) -> bytes:
    """Returns the interpreter's program, which now looks for its library beside itself.

    Where a program was built to find its library is a text in it that ends with a zero byte; a
    shorter one fits in its place.
    """
    built_in = f"{sys.base_prefix}/lib".encode() + b"\0"
    beside = b"$ORIGIN/../lib"
    if len(built_in) <= len(beside):
        return program
    return program.replace(built_in, beside.ljust(len(built_in), b"\0"))


def _copy_file(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _open(folder: Path) -> None:
    """Lets everybody read what is in a folder, and nobody else write it."""
    for above, _, names in os.walk(folder):
        os.chmod(above, 0o755)
        for name in names:
            path = os.path.join(above, name)
            if not os.path.islink(path):
                runs = os.stat(path).st_mode & stat.S_IXUSR
                os.chmod(path, 0o755 if runs else 0o644)


def _run(command: list[str | Path], *, user: int | None = None, may_fail: bool = False) -> None:
    """Runs a program of the copy, which must not depend on anything in a closed folder."""
    variables = environment()
    del variables["PYTHONPATH"], variables["PYTHONDONTWRITEBYTECODE"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, user=user, env=variables, cwd="/"
    )
    if done.returncode and not may_fail:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise ValueError(
            f"doctor: a copy of {sys.executable} does not run ({last[:200]}); install Python and "
            "jaxpar in a folder that all can read"
        )
