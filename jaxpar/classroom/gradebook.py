"""The gradebook: each student's result, with what the roster and the last run say of it.

It joins what is stored about a class, and every report for the whole class is written from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jaxpar.classroom.results import EarlierResults, Results
from jaxpar.classroom.roster import Roster, RosterRow
from jaxpar.grading.findings import NEAR

NOT_LISTED = "not in the roster"


@dataclass(frozen=True)
class GradebookEntry:
    """One student.

    Attributes:
        file_name: the name of the student's file of results without its ending; no other
            student's is the same.
        result: the result, as it is in that file.
        person: the row of the roster, or what stands for it.
        listed: whether there is such a row, or no roster at all.
        difference: the points gained since before this run; None if nothing was graded before.
        moved: the exercises where the same file has another verdict than before this run.
    """

    file_name: str
    result: dict[str, Any]
    person: RosterRow
    listed: bool
    difference: int | None
    moved: tuple[str, ...]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records of all exercises of the result."""
        return self.result["exercises"]

    @property
    def ungraded(self) -> list[str]:
        """The exercises that this machine failed to judge."""
        return [r["exercise"] for r in self.records if r["status"] == "infrastructure"]

    @property
    def near_limit(self) -> list[str]:
        """The exercises with an error that is close to what is tolerated."""
        return [
            record["exercise"]
            for record in self.records
            if any(row["message"].startswith(NEAR) for row in record["properties"])
        ]

    def attention(self) -> Iterator[str]:
        """Yields the reasons why a person should look at this result."""
        if not self.listed:
            yield NOT_LISTED
        reasons = {NEAR: self.near_limit, "infrastructure": self.ungraded, "moved": self.moved}
        yield from (f"{why}: {', '.join(names)}" for why, names in reasons.items() if names)


@dataclass(frozen=True)
class Gradebook:
    """All students; each iteration reads their results again, one at a time."""

    results: Results
    roster: Roster | None
    earlier: EarlierResults

    def __iter__(self) -> Iterator[GradebookEntry]:
        """Yields the students in the order of their files."""
        for name, result in self.results.named():
            person = self.roster.row_of(result["student"]) if self.roster else None
            yield GradebookEntry(
                name,
                result,
                person or RosterRow(result["student"]),
                person is not None or self.roster is None,
                self.earlier.difference(name, result),
                tuple(self.earlier.moved(name, result)),
            )

    @property
    def title(self) -> str:
        """The name of this assignment, which is that of the folder of results."""
        return self.results.folder.resolve().name or "jaxpar"
