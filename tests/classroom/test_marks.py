"""What a person adds is in every report, and results stay as they were judged."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.classroom.marks import LateRule, Marks, read_marks
from jaxpar.classroom.reports.write_all import write_all
from jaxpar.classroom.results import Results
from jaxpar.classroom.roster import read_roster
from tests.classroom.made_up_class import gradebook, record_of, rows_of, write_result

MARKS = """
[late]
percent = 10
grace = 1
days = 5

[students.anna]
comment = "See me: <b>soon</b>"

[students.anna.scatter]
points = 2
comment = "A clear proof in the comments."

[students.bert.mean_over_devices]
score = 6

[students.carl]
late_days = 9

[students.dora]
score = 20
late_days = 0
"""
ROSTER = "student,late_days\nanna,3\nbert,1\ncarl,\ndora,4\nemil,2\n"


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """Results in which everybody has 7 of 10 points twice; the machine failed on one of bert's."""
    folder = tmp_path / "lab1"
    (tmp_path / "roster.csv").write_text(ROSTER)
    for student in ("anna", "bert", "carl", "dora", "emil"):
        mean = record_of(
            "mean_over_devices", "infrastructure" if student == "bert" else "fail", "no"
        )
        write_result(Results(folder), student, [mean, record_of("scatter", "fail", "no")])
    (folder / "marks.toml").write_text(MARKS)
    return folder


SCORES = {
    "anna": 7 + 9 - 3,  # two of three days count: 20 % of 16, rounded in favour of the student
    "bert": 6 + 7,  # one day, which costs nothing
    "carl": 0,  # nothing counts after five days
    "dora": 20,
    "emil": 14 - 1,
}


def test_every_report_has_what_a_person_added(marked: Path) -> None:
    judged = {path.name: path.read_bytes() for path in (marked / "students").iterdir()}
    found = write_all(gradebook(marked, read_roster(marked.parent / "roster.csv")))
    assert found.scores == list(SCORES.values())
    assert not found.ungraded
    head, *rows = rows_of(marked / "class.csv")
    table = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert {name: int(row["score"]) for name, row in table.items()} == SCORES
    assert {name: row["judged"] for name, row in table.items()} == dict.fromkeys(SCORES, "14") | {
        "bert": "7"
    }
    assert table["bert"]["mean_over_devices"] == "6" and table["bert"]["attention"] == ""
    assert "of which 1 cost nothing: 10 % of the points a day" in table["anna"]["comment"]
    assert "scatter: A clear proof in the comments." in table["anna"]["comment"]
    canvas = {row[0]: int(row[-1]) for row in rows_of(marked / "canvas.csv")[2:]}
    assert canvas == SCORES
    for student, score in SCORES.items():
        gradescope = json.loads((marked / f"gradescope/{student}/results.json").read_bytes())
        classroom50 = json.loads((marked / f"classroom50/{student}/result.json").read_bytes())
        for data in (gradescope, classroom50):
            assert data["score"] == sum(test["score"] for test in data["tests"]) == score
        page = (marked / f"html/students/{student}.html").read_text()
        assert f"<b>{score} of 20 points.</b>" in page
    cases = ET.parse(marked / "junit.xml").getroot().iterfind("testsuite/testcase[@name='late']")
    assert [case[0].tag for case in cases] == ["failure"] * 3
    page = (marked / "html/students/anna.html").read_text()
    assert "See me: &lt;b&gt;soon&lt;/b&gt;" in page and "A clear proof" in page
    assert judged == {path.name: path.read_bytes() for path in (marked / "students").iterdir()}


@given(st.integers(0, 500), st.integers(0, 60), st.integers(0, 100), st.integers(0, 9))
def test_being_late_costs_no_more_than_there_is(
    points: int, days: int, percent: int, grace: int
) -> None:
    loss = LateRule(percent, grace).loss(points, days)
    assert 0 <= loss <= points
    assert loss <= points * percent * days / 100
    if days <= grace:
        assert loss == 0
    assert loss <= LateRule(percent, grace).loss(points, days + 1)


def test_without_a_file_nothing_is_added(tmp_path: Path) -> None:
    assert read_marks(tmp_path) == Marks()
    result = {"student": "anna", "score": 3, "exercises": [{"exercise": "scatter", "score": 3}]}
    applied = Marks().applied(result, 4)
    assert applied == result | {"judged": 3, "adjustments": []}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("late = 3", "late: 3; it must be a table"),
        ("[late]\npercent = 101", "late.percent: 101; write a number from 0"),
        ("[late]\ngrace = -1", "late.grace: -1"),
        ("[late]\ndays = 1.5", "late.days: 1.5; it must be a whole number"),
        ("[late]\nfee = 1", "late.fee: no such key; there is percent, grace, days"),
        ("[class]", "class: only"),
        ("[students.anna]\npoints = 1", "students.anna.points: no such key"),
        ("[students.anna.scatter]\nscore = true", "score: True; it must be a whole number"),
        ("[students]\nanna = 3", "students.anna: 3; it must be a table"),
        ("[late", "marks.toml: Expected"),
        ("\xff", "byte 0 is not UTF-8"),
    ],
)
def test_a_file_that_means_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "marks.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError) as refused:
        read_marks(tmp_path)
    assert words in str(refused.value)
