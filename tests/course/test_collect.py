"""A student's answers are packed to hand in, and nothing else of theirs."""

import os
import zipfile
from pathlib import Path

import pytest

from jaxpar.course.catalog import EXERCISES, BadUseError
from jaxpar.course.collect import collect
from jaxpar.course.folder import Course
from tests.course.fakes import answer, write


def test_only_answers_are_collected(course: Course, tmp_path: Path) -> None:
    right, large, gone, linked = EXERCISES[:4]
    write(course, right, answer(right, "right"))
    write(course, large, "#" * 300_000)
    course.file(gone).unlink()
    course.file(linked).unlink()
    course.file(linked).symlink_to("/etc/passwd")
    (course.root / "diary.txt").write_text("private")
    out = tmp_path / "mine.zip"
    collected = collect(course, out)
    assert collected.packed == {right.id: "not checked since it was changed"}
    assert "larger than" in collected.left_out[large.id]
    assert collected.left_out[gone.id] == "missing"
    assert "link" in collected.left_out[linked.id]
    assert collected.left_out[EXERCISES[-1].id] == "not written yet"
    first = out.read_bytes()
    with zipfile.ZipFile(out) as archive:
        assert archive.namelist() == [right.file]
        assert archive.read(right.file).decode() == answer(right, "right")
    os.utime(course.file(right), (1, 1))
    collect(course, out)
    assert out.read_bytes() == first


def test_nothing_to_collect_writes_nothing(course: Course, tmp_path: Path) -> None:
    with pytest.raises(BadUseError, match="no exercise"):
        collect(course, tmp_path / "mine.zip")
    with pytest.raises(BadUseError, match=r"--out mine\.doc\.zip"):
        collect(course, tmp_path / "mine.doc")
    assert not list(tmp_path.glob("mine*"))
