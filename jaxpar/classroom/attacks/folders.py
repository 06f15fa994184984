"""Folders that hold more than the file that is asked for, or something else in its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jaxpar.classroom.attacks.attack import COORDINATES, VALUE, VALUE_POINTS, Attack
from jaxpar.grading.verdict import Status

NAME = "device_coordinates.py"
_LOUD = 'raise SystemExit("this ran")\n'


def _link(folder: Path) -> None:
    (folder / NAME).symlink_to("/etc/passwd")


def _link_to_another(folder: Path) -> None:
    other = folder.parent / "other.py"
    other.write_text(COORDINATES)
    (folder / NAME).symlink_to(other)


def _hard_link(folder: Path) -> None:
    other = folder.parent / "other.py"
    other.write_text(COORDINATES)
    os.link(other, folder / NAME)


def _linked_folder(folder: Path) -> None:
    other = folder.parent / "others"
    other.mkdir()
    (other / NAME).write_text(COORDINATES)
    (folder / "exercises").symlink_to(other)


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / NAME)


def _folder(folder: Path) -> None:
    (folder / NAME).mkdir()


def _twice(folder: Path) -> None:
    for place in ("a", "b"):
        (folder / place).mkdir()
        (folder / place / NAME).write_text(COORDINATES)


def _large(folder: Path) -> None:
    (folder / NAME).write_text(COORDINATES + "#" * 10**7)


def _not_text(folder: Path) -> None:
    (folder / NAME).write_bytes(COORDINATES.encode() + b"\xff\xfe\0")


def _many(folder: Path) -> None:
    for number in range(12_000):
        (folder / f"{number}.txt").touch()


def _deep(folder: Path) -> None:
    for number in range(60):
        folder = folder / f"folder{number}"
        folder.mkdir()
    (folder / NAME).write_text(COORDINATES)


def _shadows(folder: Path) -> None:
    """Puts modules that Python, pytest or a shell would find and run beside a right answer."""
    (folder / NAME).write_text(COORDINATES)
    for name in ("jax", "jaxpar", "numpy", "__pycache__"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(_LOUD)
    for name in ("json.py", "sitecustomize.py", "usercustomize.py", "conftest.py", "setup.py"):
        (folder / name).write_text(_LOUD)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p conftest\n")
    (folder / "planted.pth").write_text("import os; os._exit(1)\n")


def _attack(
    name: str, hand_in: Callable[[Path], None], *ends: Status, honest: int = 0, says: str = ""
) -> Attack:
    return Attack(name, "folders", "", ends, honest, VALUE, says=says, hand_in=hand_in)


FOLDERS = (
    _attack("a link to a file of the machine", _link, "not-submitted", says="link"),
    _attack("a link to another submission", _link_to_another, "not-submitted", says="link"),
    _attack("a hard link to another submission", _hard_link, "not-submitted", says="hard link"),
    _attack("a link to another folder", _linked_folder, "not-submitted"),
    _attack("a FIFO that nobody writes", _fifo, "not-submitted", says="regular"),
    _attack("a folder in place of a file", _folder, "not-submitted"),
    _attack("two files of one name", _twice, "not-submitted"),
    _attack("a file of 10 MB", _large, "not-submitted", says="larger"),
    _attack("a file that is no text", _not_text, "not-submitted", says="UTF-8|NUL"),
    _attack("twelve thousand files", _many, "not-submitted"),
    _attack("a file sixty folders deep", _deep, "not-submitted"),
    _attack("modules that shadow others", _shadows, "pass", honest=VALUE_POINTS),
)  # fmt: skip
