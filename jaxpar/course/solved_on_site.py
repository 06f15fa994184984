"""Exercises that were solved on the site come into a course folder."""

from __future__ import annotations

from pathlib import Path

from jaxpar.course.backups import back_up
from jaxpar.course.catalog import BadUseError, Exercise, exercise
from jaxpar.course.folder import Course, original
from jaxpar.explore.progress import unpack
from jaxpar.files import write_atomically


def bring(course: Course, text: str) -> list[str]:
    """Writes the answers in a text of the site; returns a line about each.

    Another answer that is there already is copied first.

    Raises:
        BadUseError: the text is damaged or has an unknown exercise, and nothing was written; or a
            file cannot be written, and it is as it was.
    """
    try:
        answers = {exercise(id): source.encode() for id, source in unpack(text).items()}
    except ValueError as error:
        raise BadUseError(str(error)) from None
    return [_write(course, row, source) for row, source in answers.items()]


def _write(course: Course, row: Exercise, source: bytes) -> str:
    path, kept = course.file(row), ""
    try:
        before = path.read_bytes() if path.exists() else b""
        if before == source:
            return f"{row.file}: is so already"
        if before.strip() and before != original(row):
            backup = back_up(course, path.name, before, "import")
            kept = f"; what was there is kept as {backup.relative_to(course.root)}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, source, public=True)
    except OSError as error:
        raise BadUseError(
            f"import: cannot write {path} ({error.strerror}); it is as it was"
        ) from None
    return f"{row.file}: written{kept}"


def read_text(path: Path) -> str:
    """What is in the file that the text was pasted into.

    Raises:
        BadUseError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadUseError(f"import: cannot read {path} ({error}); paste the text into it") from None
