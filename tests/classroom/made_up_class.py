"""A class of made-up results, some of them hostile, as a grader writes them."""

import csv
import io
from pathlib import Path
from typing import Any

from jaxpar.classroom import records
from jaxpar.classroom.gradebook import Gradebook
from jaxpar.classroom.handins import Handin
from jaxpar.classroom.marks import read_marks
from jaxpar.classroom.results import EarlierResults, Results
from jaxpar.classroom.roster import Roster
from jaxpar.contracts.base import load
from jaxpar.grading.verdict import PropertyVerdict, Status, Verdict

POINTS = {"values": 5, "gradient": 1, "communication": 3, "memory": 1}
EXERCISES = ("mean_over_devices", "scatter")
NAMED = load("jaxpar.contracts.collectives.scatter").mistakes[0]
HOSTILE = (
    "=cmd|' /C calc'!A0",
    "\t=1+1",
    "a;=1+1;b",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]><x/>&amp;",
    "::error::owned",
    "\n::set-output name=x::1",
    "##[error]owned ##vso[task.complete]",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202egnp.exe",
    "\udcff \udc80",
    "\x00\x0b\ufffe\uffff",
    "x" * 5000,
    "../../etc/passwd",
    "Points Possible",
)


def record_of(exercise: str, status: Status = "pass", text: str = "", printed: str = "") -> dict:
    """Returns a record; a `fail` fails in communication, any other status but `pass` in values."""
    wrong = {"pass": None, "fail": "communication"}.get(status, "values")
    rows = []
    for name, points in POINTS.items():
        if wrong is None or (wrong != "values" and name != wrong):
            rows.append(PropertyVerdict(name, "pass", points, points, "right on tp=8", "a", "b"))
        elif name == wrong:
            rows.append(PropertyVerdict(name, "fail", 0, points, text, text, text))
        else:
            rows.append(PropertyVerdict(name, "not-judged", 0, points, "not judged"))
    properties = () if status == "infrastructure" else tuple(rows)
    score = sum(row.score for row in properties)
    verdict = Verdict(exercise, status, score, 10, properties, text, 1.5, 7, None, printed)
    return records.to_record(verdict) | {
        "submission_hash": "0" * 64,
        "contract_hash": "1" * 64,
        "environment": "2" * 64,
        "seed_id": "3" * 16,
    }


def write_result(
    results: Results, student: str, judged: list[dict[str, Any]], ignored: tuple[str, ...] = ()
) -> None:
    """Writes a student's result; an exercise that is not given was not handed in."""
    there = {r["exercise"] for r in judged}
    absent = [records.not_submitted(e, 10, "not handed in") for e in EXERCISES if e not in there]
    results.write(Handin(student, ignored=list(ignored)), [*judged, *absent], level=1)


def gradebook(folder: Path, roster: Roster | None = None) -> Gradebook:
    """Returns the gradebook from which reports are written."""
    results = Results(folder)
    return Gradebook(results, roster, EarlierResults(results), read_marks(folder))


def rows_of(path: Path) -> list[list[str]]:
    """The cells of a CSV file."""
    return list(csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig")), strict=True))
