"""Makes the repository that a class starts from: stubs, workflow, and the library as a wheel."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from jaxpar.classroom.handout.pinned_versions import constraints
from jaxpar.classroom.handout.wheel import wheel
from jaxpar.files import write_atomically

TEMPLATES = files("jaxpar.classroom.handout") / "templates"


def make_student_repository(
    folder: Path,
    lessons: Iterable[str],
    first: str,
    course: Mapping[str, bytes],
    whole_course: Mapping[str, bytes],
) -> list[str]:
    """Makes the repository in a folder that is empty or not there, and returns its files.

    Args:
        folder: where it goes.
        lessons: a line for each lesson of the course.
        first: the number of the first lesson.
        course: the files that students start from, by their name in the folder.
        whole_course: the files that every course folder has, which go into the wheel.

    Raises:
        ValueError: the folder holds something, or cannot be written.
    """
    name, packed = wheel(whole_course)
    words = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "lessons": "\n".join(lessons),
        "first": first,
    }
    kit = {
        "README.md": _filled("README.md", words),
        "AGENTS.md": template("AGENTS.md"),
        "CLAUDE.md": template("CLAUDE.md"),
        ".gitignore": template("gitignore"),
        ".github/workflows/check.yml": _filled("check.yml", words),
        "constraints.txt": constraints().encode(),
        "requirements.txt": f"-c constraints.txt\n./wheels/{name}\n".encode(),
        f"wheels/{name}": packed,
    }
    written = write_new_folder(folder, {**course, **kit})
    for file in written:
        (folder / file).chmod(0o644)  # so that everybody may copy it from here
    return written


def write_new_folder(folder: Path, contents: Mapping[str, bytes]) -> list[str]:
    """Writes files into a folder that is empty or not there, and returns their names.

    Raises:
        ValueError: the folder holds something, or cannot be written.
    """
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if taken:
            raise ValueError(
                f"classroom: {folder} is not an empty folder, and nothing in it is overwritten; "
                "name a new one"
            )
        for name, data in contents.items():
            write_atomically(folder / name, data)
    except OSError as error:
        raise ValueError(f"classroom: {folder}: {error.strerror}; name another folder") from None
    return sorted(contents)


def template(name: str) -> bytes:
    """Returns a file of the package's templates, which is copied as it is."""
    return (TEMPLATES / name).read_bytes()


def _filled(name: str, words: dict[str, str]) -> bytes:
    """Returns a file of the package's templates with each `$name` replaced by its word."""
    return Template(template(name).decode()).substitute(words).encode()
