"""The gradebook: each student's result, with what the roster and the last run say of it.

It joins what is stored about a class, and every report for the whole class is written from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from jaxpar.classroom.handins import LATE, MISSING, NO_FOLDER
from jaxpar.classroom.marks import BY_HAND, Marks
from jaxpar.classroom.records import UNREAD
from jaxpar.classroom.results import EarlierResults, Results
from jaxpar.classroom.roster import Roster, RosterRow
from jaxpar.grading.findings import NEAR

NOT_LISTED = "not in the roster"
REFUSED = "refused"
GONE = "was judged before, and is gone"
ABSENT = (MISSING, NO_FOLDER)


@dataclass(frozen=True)
class GradebookEntry:
    """One student.

    Attributes:
        file_name: the name of the student's file of results without its ending; no other
            student's is the same.
        result: the result in that file, with what a person adds.
        person: the row of the roster, or what stands for it, with the days that count as late.
        listed: whether there is such a row, or no roster at all.
        difference: the points gained since before this run; None if nothing was graded before.
        moved: the exercises where the same file has another verdict than before this run.
        gone: the exercises that had a verdict before this run, and for which nothing is there now.
    """

    file_name: str
    result: dict[str, Any]
    person: RosterRow
    listed: bool
    difference: int | None
    moved: tuple[str, ...]
    gone: tuple[str, ...]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records of all exercises of the result."""
        return self.result["exercises"]

    @property
    def ungraded(self) -> list[str]:
        """The exercises that this machine failed to judge."""
        return [r["exercise"] for r in self.records if r["status"] == "infrastructure"]

    @property
    def score(self) -> int | None:
        """The points that count; None if an answer is not judged and a person gave no score."""
        by_hand = any(made["name"] == BY_HAND for made in self.result["adjustments"])
        return None if self.ungraded and not by_hand else self.result["score"]

    @property
    def near_limit(self) -> list[str]:
        """The exercises with an error that is close to what is tolerated."""
        return [
            record["exercise"]
            for record in self.records
            if any(row["message"].startswith(NEAR) for row in record["properties"])
        ]

    @property
    def refused(self) -> dict[str, list[str]]:
        """The exercises for which something was handed in that nobody judged, by the reason."""
        found: dict[str, list[str]] = {}
        for record in self.records:
            if record["status"] == "not-submitted" and record["diagnosis"] not in ABSENT:
                found.setdefault(record["diagnosis"], []).append(record["exercise"])
        return found

    @property
    def notes(self) -> list[str]:
        """What a person should know of what was handed in."""
        notes = self.result.get("notes", [])
        return [note for note in notes if note != LATE or self.person.late_days is None]

    def comments(self) -> Iterator[str]:
        """Yields what a person wrote, and what being late costs."""
        for made in self.result["adjustments"]:
            yield made["text"]
        for record in self.records:
            if comment := record.get("by_hand", {}).get("comment"):
                yield f"{record['exercise']}: {comment}"

    def attention(self) -> Iterator[str]:
        """Yields the reasons why a person should look at this result."""
        if not self.listed:
            yield NOT_LISTED
        reasons = self._ungraded_by_reason()
        reasons |= {f"{REFUSED} ({why})": names for why, names in self.refused.items()}
        reasons |= {NEAR: self.near_limit, "moved": list(self.moved), GONE: list(self.gone)}
        yield from (f"{why}: {', '.join(names)}" for why, names in reasons.items() if names)
        yield from self.notes

    def _ungraded_by_reason(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for record in self.records:
            if record["status"] == "infrastructure":
                unread = record["diagnosis"].startswith(UNREAD)
                reason = f" ({record['diagnosis'].removeprefix(UNREAD).strip()})" if unread else ""
                found.setdefault(f"infrastructure{reason}", []).append(record["exercise"])
        return found


@dataclass(frozen=True)
class Gradebook:
    """All students; each iteration reads their results again, one at a time."""

    results: Results
    roster: Roster | None
    earlier: EarlierResults
    marks: Marks = field(default_factory=Marks)

    def __iter__(self) -> Iterator[GradebookEntry]:
        """Yields the students in the order of their files."""
        for name, result in self.results.named():
            student = result["student"]
            row = self.roster.row_of(student) if self.roster else None
            person = row or RosterRow(student)
            late_days = self.marks.late_days(student, person.late_days)
            yield GradebookEntry(
                name,
                self.marks.applied(result, late_days),
                replace(person, late_days=late_days),
                row is not None or self.roster is None,
                self.earlier.difference(name, result),
                tuple(self.earlier.moved(name, result)),
                tuple(self.earlier.gone(name, result)),
            )

    @property
    def title(self) -> str:
        """The name of this assignment, which is that of the folder of results."""
        return self.results.folder.resolve().name or "jaxpar"
