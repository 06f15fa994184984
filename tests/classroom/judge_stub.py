"""A class whose answers say what the judge finds, to test the grader without processes."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from jaxpar.classroom import grader
from jaxpar.classroom.grader import GradedExercise, Grader, GradingSettings, RecordNotice
from jaxpar.classroom.handins import Work, work_in
from jaxpar.classroom.results import Results
from jaxpar.grading.processes import Pool, start_plainly
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import PropertyVerdict, Verdict

SECRET = b"0123456789abcdef"
EXERCISES = tuple(
    GradedExercise(name, f"jaxpar.contracts.collectives.{name}", 10)
    for name in ("scatter", "gather")
)

Judge = Callable[[str, Submission], Verdict]


def exercise_id(where: str) -> str:
    """The id of the exercise that a contract is of."""
    return where.partition("@")[0].rpartition(".")[2]


def verdict(exercise: str, status: Any = "pass", diagnosis: str = "", score: int = 10) -> Verdict:
    properties = (PropertyVerdict("values", "pass", score, 10, "as it must be"),)
    return Verdict(exercise, status, score, 10, properties, diagnosis, 0.5, 1)


def by_text(where: str, submission: Submission) -> Verdict:
    """Stands for the judge: the first word of an answer is the status of its verdict."""
    exercise = exercise_id(where)
    status = submission.text.split()[0]
    return verdict(exercise, status, score=10 if status == "pass" else 0)


class StubClass:
    """A class with its submissions and results in a folder; lists what was judged."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.submissions, self.results = folder / "class", Results(folder / "out")
        self.judged: list[str] = []
        self.alone: list[bool] = []
        self.running = 0
        self.answer: Judge = by_text
        self.healthy = True
        self.level = 2
        self.told: list[RecordNotice] = []
        monkeypatch.setattr(grader, "judge", self._judge)
        monkeypatch.setattr(grader, "_works", lambda pool: self.healthy)

    def hand_in(self, student: str, **answers: str) -> None:
        folder = self.submissions / student
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in answers.items():
            (folder / f"{name}.py").write_text(f"{text}  # {student!a}")

    def grade(self, *, jobs: int = 2, **how: Any) -> Grader:
        self.judged.clear()
        self.told.clear()
        settings = GradingSettings(EXERCISES, SECRET, self.level, (start_plainly,) * jobs, **how)
        made = Grader(settings, self.results, self.told.append)
        made.grade(self.works())
        return made

    def works(self) -> Iterable[Work]:
        return map(work_in, sorted(self.submissions.iterdir()))

    def statuses(self, student: str) -> dict[str, str]:
        return {name: r["status"] for name, r in self.results.records(student).items()}

    def written(self) -> dict[str, bytes]:
        """The bytes of all results."""
        paths = (self.results.folder / "students").iterdir()
        return {path.name: path.read_bytes() for path in paths}

    def _judge(self, where: str, submission: Submission, *, pool: Pool, **_: Any) -> Verdict:
        pool.begin()
        self.running += 1
        time.sleep(0.001)
        self.alone.append(self.running == 1)
        try:
            self.judged.append(exercise_id(where))
            return self.answer(where, submission)
        finally:
            self.running -= 1
