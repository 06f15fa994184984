"""Puts a stub back, after a copy of the learner's file was written."""

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
        backup = _back_up(course.state / "backups", row.id, data)
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


def _back_up(folder: Path, id: str, data: bytes) -> Path:
    """Writes `data` under the next free number, and reads it back."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        backup = _reserve(folder, id)
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
            f"reset: no backup could be written in {folder} ({error.strerror}); "
            "your file is as it was"
        ) from None


def _reserve(folder: Path, id: str) -> Path:
    """Creates the first free name, so that two resets never share a number."""
    number = 1
    while True:
        backup = folder / f"{id}.{number}.py"
        try:
            backup.touch(exist_ok=False)
            return backup
        except FileExistsError:
            number += 1
