"""A class of thirty is graded in which everything goes wrong that may, but for the judging."""

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from jaxpar.classroom import grader
from jaxpar.classroom.sandbox import levels
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict
from tests.classroom.faulty_class import FAULTS, MEAN, SCATTER, UNREADABLE, write_class
from tests.classroom.judge_stub import exercise_id, verdict
from tests.cli.conftest import run

__all__ = ["run"]
MARKS = f"""
[late]
percent = 50
grace = 1

[students.nora]
late_days = 2

[students.fritz.{MEAN}]
score = 8
comment = "The file was shown to me."
"""


def by_text(where: str, submission: Submission, **_: Any) -> Verdict:
    """Stands for the judge: an answer is right if it divides, and is run if it is whole."""
    status = "pass" if "axis_size" in submission.text else "fail"
    if "psum" not in submission.text:
        status = "error"
    return verdict(exercise_id(where), status, score=10 if status == "pass" else 0)


def table(results: Path) -> dict[str, dict[str, str]]:
    with (results / "class.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["student"].lstrip("'"): row for row in csv.DictReader(file)}


@pytest.fixture
def graded(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that grades the class, on a disk that cannot read one folder."""
    write_class(tmp_path / "class")
    open_folder = os.open

    def cannot_read(path: Any, *arguments: Any, **how: Any) -> int:
        if path == "unreadable":
            raise PermissionError(13, "Permission denied")
        return open_folder(path, *arguments, **how)

    monkeypatch.setattr(os, "open", cannot_read)
    monkeypatch.setattr(grader, "judge", by_text)
    sandbox = levels.Sandbox(levels.NOT_ISOLATED, None)
    monkeypatch.setattr(levels, "best_sandbox", lambda **_: sandbox)

    def grade(*more: str) -> Any:
        return run(
            "grade", str(tmp_path / "class"), "--out", str(tmp_path / "lab1"), "--secret-file",
            str(tmp_path / "secret"), "--jobs", "2", *more, "--exercises", MEAN, SCATTER,
        )  # fmt: skip

    return grade


def test_nobody_loses_points_without_anybody_knowing(graded: Any, tmp_path: Path) -> None:
    assert len(FAULTS) == 30
    ended = graded()
    assert ended.code == 1  # since the machine failed for one of them
    assert f"grade again: {UNREADABLE}" in ended.out
    rows = table(tmp_path / "lab1")
    assert len(rows) == 30
    page = (tmp_path / "lab1" / "html" / "index.html").read_text()
    for fault in FAULTS:
        shown = fault.student.replace("\u202e", "?")
        row = rows[shown]
        points = {"pass": "10", "infrastructure": ""}.get(fault.status, "0")
        assert row[MEAN] == points, fault.student
        assert fault.says in row["attention"], fault.student
        if fault.says:
            assert fault.says.replace("'", "&#39;") in page, fault.student
        if fault.status == "not-submitted" and not fault.says:
            assert row["attention"] == "", fault.student


def test_a_person_has_the_last_word_and_a_regrade_keeps_it(graded: Any, tmp_path: Path) -> None:
    (tmp_path / "lab1").mkdir()
    (tmp_path / "lab1" / "marks.toml").write_text(MARKS)
    for options in ((), ("--fresh",)):
        graded(*options)
        rows = table(tmp_path / "lab1")
        assert (rows["fritz"]["score"], rows["fritz"]["judged"]) == ("8", "0")
        assert "The file was shown to me." in rows["fritz"]["comment"]
        assert (rows["nora"]["score"], rows["nora"]["late_days"]) == ("5", "2")
    page = (tmp_path / "lab1" / "html" / "students" / "fritz.html").read_text()
    assert "The file was shown to me." in page


def test_each_student_sees_their_own_code(graded: Any, tmp_path: Path) -> None:
    graded()
    pages = tmp_path / "lab1" / "html" / "students"
    assert "lax.psum(x, axis) / lax.axis_size(axis)" in (pages / "ugo.html").read_text()
    assert "lax.psum" not in (pages / "fritz.html").read_text()
