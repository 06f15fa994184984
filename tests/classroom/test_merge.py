"""Several folders of results are merged into one."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxpar.classroom.handins import Handin
from jaxpar.classroom.merge import MergeReport, merge
from jaxpar.classroom.results import Results


def record_of(exercise: str, status: str = "pass", score: int = 10, **more: Any) -> dict[str, Any]:
    properties = [{"name": "values", "status": status, "score": score, "message": ""}]
    known = {"exercise": exercise, "status": status, "score": score, "max_score": 10}
    return known | {"properties": properties, "environment": "here"} | more


def results(folder: Path, student: str, *records: dict[str, Any], level: int = 1) -> Path:
    Results(folder).write(Handin(student), records, level)
    return folder


def read(folder: Path, student: str) -> dict[str, Any]:
    return json.loads((folder / "students" / f"{student}.json").read_text())


def statuses(folder: Path, student: str) -> dict[str, str]:
    return {r["exercise"]: r["status"] for r in read(folder, student)["exercises"]}


def test_students_of_several_folders_are_one_class(tmp_path: Path) -> None:
    one = results(tmp_path / "1", "anna", record_of("scatter"))
    two = results(tmp_path / "2", "bert", record_of("scatter", "fail", 3))
    out = tmp_path / "out"
    assert merge([one, two], out) == MergeReport()
    assert read(out, "anna") == read(one, "anna")
    assert read(out, "bert") == read(two, "bert")
    assert merge([two, one], out) == MergeReport()  # once more changes nothing


def test_exercises_of_a_student_come_together(tmp_path: Path) -> None:
    one = results(tmp_path / "1", "anna", record_of("scatter"))
    two = results(
        tmp_path / "2", "anna", record_of("gather", "fail", 3), record_of("scatter"), level=2
    )
    assert not merge([one, two], tmp_path / "out").conflicts
    result = read(tmp_path / "out", "anna")
    assert (result["score"], result["max_score"], result["level"]) == (13, 20, 2)
    assert statuses(tmp_path / "out", "anna") == {"scatter": "pass", "gather": "fail"}


def test_of_two_verdicts_the_later_counts_and_is_named(tmp_path: Path) -> None:
    one = results(tmp_path / "1", "anna", record_of("scatter"))
    two = results(tmp_path / "2", "anna", record_of("scatter", "fail", 3))
    merged = merge([one, two], tmp_path / "out")
    assert merged.conflicts == ["anna: scatter: pass 10/10, then fail 3/10; fail 3/10 counts"]
    assert read(tmp_path / "out", "anna")["score"] == 3
    assert merge([one], tmp_path / "out").conflicts == [
        "anna: scatter: fail 3/10, then pass 10/10; pass 10/10 counts"
    ]


@pytest.mark.parametrize("status", ["infrastructure", "not-submitted"])
def test_no_verdict_takes_the_place_of_one(tmp_path: Path, status: str) -> None:
    one = results(tmp_path / "1", "anna", record_of("scatter"))
    two = results(tmp_path / "2", "anna", record_of("scatter", status, 0))
    for order in ([one, two], [two, one]):
        out = tmp_path / order[0].name / "out"
        assert len(merge(order, out).conflicts) == 1
        assert statuses(out, "anna") == {"scatter": "pass"}


def test_what_was_judged_and_its_evidence_come_along(tmp_path: Path) -> None:
    for name in ("1", "2"):
        folder = results(tmp_path / name, "anna", record_of("scatter"))
        for kind in ("records", "evidence", "sources"):
            (folder / "journal" / kind).mkdir(parents=True)
            (folder / "journal" / kind / name).write_text(name)
            (folder / "journal" / kind / "both").write_text(name)
            (folder / "journal" / kind / ".half").write_text(name)
    out = tmp_path / "out"
    for _ in range(2):
        merge([tmp_path / "1", tmp_path / "2"], out)
        found = {path.name: path.read_text() for path in (out / "journal" / "evidence").iterdir()}
        assert found == {"1": "1", "2": "2", "both": "2"}
    assert {path.name for path in (out / "journal").iterdir()} == {"records", "evidence", "sources"}


def test_other_environments_are_named(tmp_path: Path) -> None:
    one = results(tmp_path / "1", "anna", record_of("scatter"), record_of("gather"))
    two = results(tmp_path / "2", "bert", record_of("scatter", environment="there"))
    merged = merge([one, two], tmp_path / "out")
    assert merged.environments == {"scatter": 2}
    assert "scatter: judged in 2 environments" in merged.lines()[0]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"student": "x", "level": 1, "exercises": [{"score": "9"}]}']
)
def test_what_is_no_result_is_named_before_anything_is_written(tmp_path: Path, text: str) -> None:
    one = results(tmp_path / "1", "anna", record_of("scatter"))
    broken = results(tmp_path / "2", "bert") / "students" / "bert.json"
    broken.write_text(text)
    with pytest.raises(ValueError, match=r"bert\.json is not a student's result"):
        merge([one, tmp_path / "2"], tmp_path / "out")
    with pytest.raises(ValueError, match=r"3 holds no results"):
        merge([one, tmp_path / "3"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    evil = "a\x1b[2Jb"
    one = results(tmp_path / "1", "anna", record_of("scatter"))
    two = results(tmp_path / "2", "anna", record_of("scatter", "fail", 3))
    data = read(two, "anna") | {"student": evil}
    (two / "students" / "anna.json").write_text(json.dumps(data))
    (line,) = merge([one, two], tmp_path / "out").lines()
    assert "\x1b" not in line
