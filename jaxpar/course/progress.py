"""How far a learner is: derived from the verdicts on the files as they are now.

Nothing is judged here: a file that was never judged as it is now counts as changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jaxpar.course.catalog import Exercise
from jaxpar.course.check import Verdicts
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.grading.submission import SubmissionError, is_stub, read_submission

Status = Literal["todo", "changed", "pass", "fail"]


@dataclass(frozen=True)
class Standing:
    """One exercise and how it stands.

    Attributes:
        exercise: the exercise.
        status: `todo` if nothing was written yet, `changed` if the file was not judged as it is
            now, else `pass` or `fail`.
        seen: whether the solution was shown before it was solved.
        best: the lowest number that a right answer to a challenge has reached.
    """

    exercise: Exercise
    status: Status
    seen: bool
    best: int | None = None

    @property
    def open(self) -> bool:
        """Whether there is still something to do."""
        return self.status != "pass"

    def to_dict(self) -> dict[str, Any]:
        """What `jaxpar list --json` prints."""
        row = self.exercise
        return {
            "id": row.id,
            "lesson": row.lesson,
            "title": row.title,
            "kind": row.kind,
            "points": row.points,
            "status": self.status,
            "file": row.file,
            "needs": list(row.needs),
            "minutes": row.minutes,
            "seen": self.seen,
            "best": self.best,
        }


def progress(course: Course, verdicts: Verdicts) -> list[Standing]:
    """Returns how every exercise of the folder stands, in order, without judging any."""
    record = LearnerRecord(course.state)
    return [
        Standing(row, status(course, verdicts, row), record.seen(row.id), record.best(row.id))
        for row in course.exercises
    ]


def status(course: Course, verdicts: Verdicts, row: Exercise) -> Status:
    """How one exercise stands."""
    path = course.file(row)
    try:
        submission = read_submission(path)
    except SubmissionError:
        return "changed" if path.exists() else "todo"
    if is_stub(submission, row.id):
        return "todo"
    verdict = verdicts.get(row.where, submission)
    if verdict is None:
        return "changed"
    return "pass" if verdict.passed else "fail"


def next_row(rows: Sequence[Standing], start: str = "01") -> Standing | None:
    """The first exercise that is open, from the lesson with number `start` on."""
    return next((row for row in rows if row.open and row.exercise.lesson >= start), None)


def at_hand(rows: Sequence[Standing], record: LearnerRecord) -> Standing:
    """Returns the exercise that the learner was at; if it is solved, the next one that is not.

    After the last exercise, the search goes on at the first one.
    """
    ids = [row.exercise.id for row in rows]
    place = record.place()
    start = ids.index(place) if place in ids else 0
    return next_row([*rows[start:], *rows[:start]]) or rows[start]


def in_numbers(rows: Sequence[Standing]) -> str:
    """Returns how many exercises stand how: `12 pass, 2 fail, 1 not judged, 46 to do`."""
    words = {"pass": "pass", "fail": "fail", "changed": "not judged", "todo": "to do"}
    counts = Counter(row.status for row in rows)
    return ", ".join(f"{counts[status]} {word}" for status, word in words.items() if counts[status])
