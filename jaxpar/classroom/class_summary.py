"""What a class did, counted in one pass over its gradebook.

The page of the class and the last lines in the terminal are written from this summary.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jaxpar.classroom.gradebook import GONE, NOT_LISTED, REFUSED, GradebookEntry
from jaxpar.classroom.marks import BY_HAND
from jaxpar.classroom.records import reproducible
from jaxpar.classroom.untrusted_text import safe_line
from jaxpar.contracts import find
from jaxpar.contracts.base import load, variants
from jaxpar.grading.findings import NEAR

MOST_NAMED = 8
UNJUDGED = ("not-submitted", "infrastructure", BY_HAND)
_PLACE = re.compile(r"^(on [^:]{1,60}: )?(line \d+: )?")


@dataclass(frozen=True)
class MistakeMade:
    """What is wrong with an answer: a known mistake by its name, else how the answer fails."""

    exercise: str
    name: str
    sentence: str


@dataclass
class ExerciseSummary:
    """All answers to one exercise.

    Attributes:
        max_score: the points that a right answer earns.
        handed_in: how many answers could be judged at all.
        full: how many earned all points.
        points: the points of all answers together.
        right: by property, how many answers are right.
    """

    max_score: int
    handed_in: int = 0
    full: int = 0
    points: int = 0
    right: Counter[str] = field(default_factory=Counter)


@dataclass
class CountedStudents:
    """How many students something is true of, and the names of the first few."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """Counts one more student."""
        self.count += 1
        if len(self.names) < MOST_NAMED:
            self.names.append(name)

    def __str__(self) -> str:
        """Returns the names, and how many more there are."""
        more = self.count - len(self.names)
        return ", ".join(map(safe_line, self.names)) + (f" and {more} more" if more else "")


@dataclass
class ClassSummary:
    """The class as a whole.

    Attributes:
        scores: the scores of those whose files could all be judged.
        ungraded: how many others there are.
        max_score: the most that anybody could earn.
        levels: the levels of isolation.
        exercises: the summary of each exercise by its id, in the order of the course.
        mistakes: the students who made each mistake.
        attention: by reason, the students whose result a person should look at.
    """

    scores: list[int] = field(default_factory=list)
    ungraded: int = 0
    max_score: int = 0
    levels: set[int] = field(default_factory=set)
    exercises: dict[str, ExerciseSummary] = field(default_factory=dict)
    mistakes: dict[MistakeMade, CountedStudents] = field(default_factory=dict)
    attention: dict[str, CountedStudents] = field(default_factory=dict)

    def frequent_mistakes(self) -> list[tuple[MistakeMade, CountedStudents]]:
        """Returns the mistakes, the most frequent first."""
        return sorted(self.mistakes.items(), key=lambda item: -item[1].count)

    def score_line(self) -> str:
        """Returns mean, median and range of the scores in a line."""
        if not self.scores:
            return "no student could be graded to the end"
        low, high = min(self.scores), max(self.scores)
        return (
            f"mean {statistics.fmean(self.scores):.1f} of {self.max_score} points, "
            f"median {statistics.median(self.scores):g}, lowest {low}, highest {high}"
        )

    def lines(self, most_mistakes: int = 5) -> Iterator[str]:
        """Yields the lines that are printed at the end of a run."""
        count = len(self.scores)
        yield f"{count} student{'s' * (count != 1)}: {self.score_line()}."
        for reason, students in self.attention.items():
            yield f"  {reason}: {students}"
        if self.mistakes:
            yield "Most frequent mistakes:"
        for mistake, students in self.frequent_mistakes()[:most_mistakes]:
            of = self.exercises[mistake.exercise].handed_in
            exercise, sentence = safe_line(mistake.exercise), safe_line(mistake.sentence)
            yield f"  {students.count} of {of}  {exercise}: {sentence}"

    def add(self, entry: GradebookEntry) -> None:
        """Counts one student."""
        self.levels.add(entry.result["level"])
        self.max_score = max(self.max_score, entry.result["max_score"])
        if entry.score is None:
            self.ungraded += 1
        else:
            self.scores.append(entry.score)
        reasons = {
            "infrastructure, not in the numbers; grade again": entry.ungraded,
            NEAR: entry.near_limit,
            f"{REFUSED}; look at what they handed in": entry.refused,
            "moved": entry.moved,
            GONE: entry.gone,
            NOT_LISTED: not entry.listed,
            **dict.fromkeys(entry.notes, True),
        }
        for reason, applies in reasons.items():
            if applies:
                self.attention.setdefault(reason, CountedStudents()).add(entry.result["student"])
        for record in entry.records:
            self._add_record(entry.result["student"], record)

    def _add_record(self, student: str, record: dict[str, Any]) -> None:
        answers = self.exercises.setdefault(
            record["exercise"], ExerciseSummary(record["max_score"])
        )
        if record["status"] in UNJUDGED:
            return
        answers.handed_in += 1
        answers.full += record["status"] == "pass"
        answers.points += record["score"]
        for row in record["properties"]:
            answers.right[row["name"]] += row["status"] == "pass"
        if mistake := mistake_in(record):
            self.mistakes.setdefault(mistake, CountedStudents()).add(student)


def summarize(gradebook: Iterable[GradebookEntry]) -> ClassSummary:
    """Counts everything in one pass."""
    summary = ClassSummary()
    for entry in gradebook:
        summary.add(entry)
    return summary


def mistake_in(record: dict[str, Any]) -> MistakeMade | None:
    """Returns what is wrong with an answer, if anything is."""
    exercise, status, diagnosis = record["exercise"], record["status"], record["diagnosis"]
    if status in ("pass", *UNJUDGED):
        return None
    names = _names_by_sentence(exercise)
    if diagnosis in names:
        return MistakeMade(exercise, names[diagnosis], diagnosis)
    if status not in ("fail", "error"):
        return MistakeMade(exercise, status, f"ended with {status}")
    wrong = next((row["name"] for row in record["properties"] if row["status"] == "fail"), status)
    name = status if status == "error" else wrong
    first = safe_line(_PLACE.sub("", diagnosis.partition("\n")[0]))
    return MistakeMade(exercise, name, first or f"{wrong}: wrong in a way that has no name")


@cache
def _names_by_sentence(exercise: str) -> dict[str, str]:
    """Maps the sentence of each known mistake, as records spell it, to the mistake's name."""
    where = find(exercise)
    if where is None:
        return {}
    contracts = [load(f"{where}@{variant}") for variant in range(variants(where))]
    return {reproducible(m.sentence): m.name for contract in contracts for m in contract.mistakes}
