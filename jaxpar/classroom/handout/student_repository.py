"""The repository that a class starts from, made for one course."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from jaxpar.classroom.handout.pinned_versions import constraints
from jaxpar.classroom.handout.wheel import wheel
from jaxpar.course.catalog import BadUseError, Exercise, Lesson
from jaxpar.course.folder import fixed_files, stub_files, write_files
from jaxpar.course.variants import FILE, told

TEMPLATES = files("jaxpar.classroom.handout") / "templates"


def make_handout(
    folder: Path, lessons: Sequence[Lesson], exercises: Sequence[Exercise]
) -> list[str]:
    """Makes a student repository in a folder that is empty or not there; returns its files.

    Args:
        folder: where it goes.
        lessons: those of the course, with all that they ask.
        exercises: what they ask, in the variants of the course.

    Raises:
        BadUseError: the folder holds something, or cannot be written.
    """
    check_empty(folder)
    name, packed = wheel()
    words = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "lessons": "\n".join(_line(row) for row in lessons),
        "first": lessons[0].number,
    }
    kit = {
        "README.md": filled("README.md", words),
        "AGENTS.md": template("AGENTS.md"),
        "CLAUDE.md": template("CLAUDE.md"),
        ".gitignore": template("gitignore"),
        ".github/workflows/check.yml": filled("check.yml", words),
        "constraints.txt": constraints().encode(),
        "requirements.txt": f"-c constraints.txt\n./wheels/{name}\n".encode(),
        f"wheels/{name}": packed,
    }
    if any(row.variant for row in exercises):
        kit[FILE] = told(exercises)
    written, _ = write_files(folder, fixed_files(lessons) | stub_files(exercises) | kit)
    for file in written:
        (folder / file).chmod(0o644)  # it may be copied from here by all
    return sorted(written)


def check_empty(folder: Path) -> None:
    """Raises BadUseError if there is something in a folder that is to be made."""
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise BadUseError(f"classroom: {folder}: {error.strerror}; name another folder") from None
    if taken:
        raise BadUseError(
            f"classroom: {folder} is not an empty folder, and nothing in it is overwritten; "
            "name a new one"
        )


def template(name: str) -> bytes:
    """A file of the package that goes into what is made, as it is."""
    return (TEMPLATES / name).read_bytes()


def filled(name: str, words: dict[str, str]) -> bytes:
    """The same, with words put in for `$name`."""
    return Template(template(name).decode()).substitute(words).encode()


def _line(row: Lesson) -> str:
    asks = ", ".join(f"`{exercise.id}`" for exercise in row.asks)
    return f"- {row.number} [{row.title}]({row.file}): {asks}"
