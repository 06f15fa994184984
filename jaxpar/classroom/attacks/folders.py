"""Folders that hold more than the file that is asked for, or something else in its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jaxpar.classroom.attacks.attack import COORDINATES, VALUE, VALUE_POINTS, Attack
from jaxpar.grading.verdict import Status

NAME = "device_coordinates.py"
_LOUD = 'raise SystemExit("this ran")\n'
_NOT_TEXT = COORDINATES.encode() + b"\xff\xfe\0"


def _other(file: Path) -> Path:
    """Writes the answer of another student beside the folder of this one."""
    other = file.parent.parent / "other.py"
    other.write_text(COORDINATES)
    return other


def _linked_folder(file: Path) -> None:
    other = file.parent.parent / "others"
    other.mkdir()
    (other / NAME).write_text(COORDINATES)
    (file.parent / "exercises").symlink_to(other)


def _twice(file: Path) -> None:
    for place in ("a", "b"):
        (file.parent / place).mkdir()
        (file.parent / place / NAME).write_text(f"{COORDINATES}# {place}\n")


def _many(file: Path) -> None:
    for number in range(12_000):
        (file.parent / f"{number}.txt").touch()


def _deep(file: Path) -> None:
    folder = file.parent.joinpath(*(f"folder{number}" for number in range(60)))
    folder.mkdir(parents=True)
    (folder / NAME).write_text(COORDINATES)


def _shadows(file: Path) -> None:
    """Puts modules that Python, pytest or a shell would find and run beside a right answer."""
    file.write_text(COORDINATES)
    for name in ("jax", "jaxpar", "numpy", "__pycache__"):
        (file.parent / name).mkdir()
        (file.parent / name / "__init__.py").write_text(_LOUD)
    for name in ("json.py", "sitecustomize.py", "usercustomize.py", "conftest.py", "setup.py"):
        (file.parent / name).write_text(_LOUD)
    (file.parent / "pytest.ini").write_text("[pytest]\naddopts = -p conftest\n")
    (file.parent / "planted.pth").write_text("import os; os._exit(1)\n")


def _attack(
    name: str, make: Callable[[Path], object], *ends: Status, honest: int = 0, says: str = ""
) -> Attack:
    """Makes an attack from a function that creates the file, or something else in its place."""

    def hand_in(folder: Path) -> None:
        make(folder / NAME)

    return Attack(name, "folders", "", ends, honest, VALUE, says=says, hand_in=hand_in)


FOLDERS = (
    _attack("a link to a file of the machine", lambda file: file.symlink_to("/etc/passwd"),
            "not-submitted", says="link"),
    _attack("a link to another submission", lambda file: file.symlink_to(_other(file)),
            "not-submitted", says="link"),
    _attack("a hard link to another submission", lambda file: file.hardlink_to(_other(file)),
            "not-submitted", says="hard link"),
    _attack("a link to another folder", _linked_folder, "not-submitted"),
    _attack("a FIFO that nobody writes", os.mkfifo, "not-submitted", says="regular"),
    _attack("a folder in place of a file", Path.mkdir, "not-submitted", says="regular"),
    _attack("two files of one name", _twice, "not-submitted", says="handed in twice: a/.* and b/"),
    _attack("a file of 10 MB", lambda file: file.write_text(COORDINATES + "#" * 10**7),
            "not-submitted", says="larger"),
    _attack("a file that is no text", lambda file: file.write_bytes(_NOT_TEXT), "not-submitted",
            says="UTF-8|NUL"),
    _attack("twelve thousand files", _many, "not-submitted"),
    _attack("a file sixty folders deep", _deep, "not-submitted"),
    _attack("modules that shadow others", _shadows, "pass", honest=VALUE_POINTS),
)  # fmt: skip
