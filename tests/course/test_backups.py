"""`reset` loses nothing."""

import errno
from pathlib import Path

import pytest

from jaxpar.course import backups
from jaxpar.course.backups import reset
from jaxpar.course.catalog import EXERCISES, BadUseError
from jaxpar.course.folder import Course
from tests.course.fakes import stub_of, write

ROW = EXERCISES[0]


def test_backups_are_numbered(course: Course) -> None:
    for number, text in enumerate(("first", "second"), start=1):
        write(course, ROW, text)
        backup = reset(course, ROW)
        assert backup == course.state / "backups" / f"{ROW.id}.{number}.py"
        assert backup.read_text() == text
        assert course.file(ROW).read_bytes() == stub_of(ROW)


def test_an_untouched_or_missing_file_needs_no_backup(course: Course) -> None:
    assert reset(course, ROW) is None
    course.file(ROW).unlink()
    assert reset(course, ROW) is None
    assert course.file(ROW).read_bytes() == stub_of(ROW)


def test_without_a_backup_nothing_is_reset(course: Course) -> None:
    write(course, ROW, "my work")
    course.state.write_text("a file where a folder should be")
    with pytest.raises(BadUseError, match=r"reset: no backup could be written .*as it was"):
        reset(course, ROW)
    assert course.file(ROW).read_text() == "my work"


def test_a_full_disk_leaves_the_file_and_no_half_backup(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write(course, ROW, "my work")
    monkeypatch.setattr(backups, "write_atomically", full)
    with pytest.raises(BadUseError, match="No space left on device"):
        reset(course, ROW)
    assert course.file(ROW).read_text() == "my work"
    assert not list((course.state / "backups").iterdir())
