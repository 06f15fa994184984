"""Numbered copies of what the learner wrote, and `reset`, which puts a stub back."""

from __future__ import annotations

import errno
from pathlib import Path

from jaxpar.course.catalog import BadUseError, Exercise
from jaxpar.course.folder import Course, original
from jaxpar.files import write_atomically


def reset(course: Course, row: Exercise) -> Path | None:
    """Restores the stub of an exercise; returns the backup of the learner's file, if there was one.

    Raises:
        BadUseError: the backup or the stub could not be written; the learner's file is as it was.
    """
    path = course.file(row)
    stub = original(row)
    backup = None
    if path.exists() and (data := _read(path)) != stub:
        backup = back_up(course, path.name, data, "reset")
    try:
        write_atomically(path, stub, public=True)
    except OSError as error:
        raise BadUseError(
            f"reset: cannot write {path} ({error.strerror}); it is as it was"
        ) from None
    return backup


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadUseError(
            f"reset: cannot read {path} ({error.strerror}); it is as it was"
        ) from None


def back_up(course: Course, name: str, data: bytes, verb: str) -> Path:
    """Writes a copy of a file under the next free number, and reads it back.

    Args:
        course: where backups are kept.
        name: what the file is called.
        data: what is in it.
        verb: what is about to replace it; the message of an error begins with it.

    Raises:
        BadUseError: the copy could not be written.
    """
    folder = course.state / "backups"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        backup = _reserve(folder, Path(name))
        try:
            write_atomically(backup, data)
        except OSError:
            backup.unlink(missing_ok=True)
            raise
        if backup.read_bytes() != data:
            raise OSError(errno.EIO, "what was read back differs")
        return backup
    except OSError as error:
        raise BadUseError(
            f"{verb}: no backup could be written in {folder} ({error.strerror}); "
            "your file is as it was"
        ) from None


def _reserve(folder: Path, name: Path) -> Path:
    """Creates the first free name, so that two copies never share a number."""
    number = 1
    while True:
        backup = folder / f"{name.stem}.{number}{name.suffix}"
        try:
            backup.touch(exist_ok=False)
            return backup
        except FileExistsError:
            number += 1
