"""What a class did, counted while its results go by."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jaxpar.classroom.gradebook import NOT_LISTED, Entry
from jaxpar.classroom.records import cleaned
from jaxpar.classroom.untrusted_text import line
from jaxpar.contracts.sentences import SENTENCES
from jaxpar.grading.findings import NEAR

MOST_NAMED = 8
_PLACE = re.compile(r"^(on [^:]{1,60}: )?(line \d+: )?")


@dataclass(frozen=True)
class Mistake:
    """What is wrong with an answer: a known mistake by its name, else how it fails."""

    exercise: str
    name: str
    sentence: str


@dataclass
class Answers:
    """All answers to one exercise.

    Attributes:
        max_score: points that a right one earns.
        handed_in: how many could be judged at all.
        full: how many earned all points.
        points: all points together.
        right: by property, how many are right.
    """

    max_score: int
    handed_in: int = 0
    full: int = 0
    points: int = 0
    right: Counter[str] = field(default_factory=Counter)


@dataclass
class Some:
    """How many there are, and the first few by name."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        """One more."""
        self.count += 1
        if len(self.names) < MOST_NAMED:
            self.names.append(name)

    def words(self) -> str:
        """The names, and how many more."""
        more = self.count - len(self.names)
        return ", ".join(map(line, self.names)) + (f" and {more} more" if more else "")


@dataclass
class Tally:
    """The class as a whole.

    Attributes:
        scores: of those whose files could all be judged.
        max_score: the most that anybody could earn.
        levels: of isolation.
        exercises: by id, in the order of the course.
        mistakes: who made each.
        attention: by reason, what a person should look at.
    """

    scores: list[int] = field(default_factory=list)
    max_score: int = 0
    levels: set[int] = field(default_factory=set)
    exercises: dict[str, Answers] = field(default_factory=dict)
    mistakes: dict[Mistake, Some] = field(default_factory=dict)
    attention: dict[str, Some] = field(default_factory=dict)

    def frequent(self) -> list[tuple[Mistake, Some]]:
        """The mistakes, the most frequent first."""
        return sorted(self.mistakes.items(), key=lambda item: -item[1].count)

    def spread(self) -> str:
        """How the class did, in a line."""
        if not self.scores:
            return "no student could be graded to the end"
        low, high = min(self.scores), max(self.scores)
        return (
            f"mean {statistics.fmean(self.scores):.1f} of {self.max_score} points, "
            f"median {statistics.median(self.scores):g}, lowest {low}, highest {high}"
        )

    def lines(self, most: int = 5) -> Iterator[str]:
        """What the terminal says at the end."""
        count = len(self.scores)
        yield f"{count} student{'s' * (count != 1)}: {self.spread()}."
        for word, some in self.attention.items():
            yield f"  {word}: {some.words()}"
        if self.mistakes:
            yield "Most frequent mistakes:"
        for mistake, some in self.frequent()[:most]:
            of = self.exercises[mistake.exercise].handed_in
            yield f"  {some.count} of {of}  {line(mistake.exercise)}: {line(mistake.sentence)}"


def tally(entries: Iterable[Entry]) -> Tally:
    """Counts everything once."""
    found = Tally()
    for entry in entries:
        found.levels.add(entry.result["level"])
        if entry.ungraded:
            _note(found, "infrastructure, not in the numbers; grade again", entry)
        else:
            found.scores.append(entry.result["score"])
        found.max_score = max(found.max_score, entry.result["max_score"])
        reasons = ((NEAR, entry.near), ("moved", entry.moved), (NOT_LISTED, not entry.listed))
        for reason, there in reasons:
            if there:
                _note(found, reason, entry)
        for record in entry.exercises:
            _count(found, entry, record)
    return found


def _note(found: Tally, reason: str, entry: Entry) -> None:
    found.attention.setdefault(reason, Some()).add(entry.result["student"])


def _count(found: Tally, entry: Entry, record: dict[str, Any]) -> None:
    answers = found.exercises.setdefault(record["exercise"], Answers(record["max_score"]))
    if record["status"] in ("not-submitted", "infrastructure"):
        return
    answers.handed_in += 1
    answers.full += record["status"] == "pass"
    answers.points += record["score"]
    for row in record["properties"]:
        answers.right[row["name"]] += row["status"] == "pass"
    if mistake := mistake_of(record):
        found.mistakes.setdefault(mistake, Some()).add(entry.result["student"])


def mistake_of(record: dict[str, Any]) -> Mistake | None:
    """What is wrong with an answer, if anything is."""
    exercise, status, diagnosis = record["exercise"], record["status"], record["diagnosis"]
    if status in ("pass", "not-submitted", "infrastructure"):
        return None
    if diagnosis in _names():
        return Mistake(exercise, _names()[diagnosis], diagnosis)
    wrong = next((row["name"] for row in record["properties"] if row["status"] == "fail"), status)
    if status not in ("fail", "error"):
        return Mistake(exercise, status, f"ended with {status}")
    first = line(_PLACE.sub("", diagnosis.partition("\n")[0]))
    name = status if status == "error" else wrong
    return Mistake(exercise, name, first or f"{wrong}: wrong in a way that has no name")


@cache
def _names() -> dict[str, str]:
    """The names of mistakes by what is said of them, as records spell it."""
    return {cleaned(sentence): name for name, sentence in SENTENCES.items()}
