"""What every writer writes of: a student's result, with what the roster and the last run say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jaxpar.classroom.before import Before
from jaxpar.classroom.results import Results
from jaxpar.classroom.roster import Person, Roster
from jaxpar.grading.findings import NEAR

NOT_LISTED = "not in the roster"


@dataclass(frozen=True)
class Entry:
    """One student.

    Attributes:
        name: of the student's file of results, without its ending: unlike any other's.
        result: the result, as in that file.
        person: the row of the roster, or what stands for it.
        listed: whether there is a row, or no roster.
        difference: points more than before this run; None for who was not graded before.
        moved: exercises where the same file has another verdict than before.
    """

    name: str
    result: dict[str, Any]
    person: Person
    listed: bool
    difference: int | None
    moved: tuple[str, ...]

    @property
    def exercises(self) -> list[dict[str, Any]]:
        """The verdicts."""
        return self.result["exercises"]

    @property
    def ungraded(self) -> list[str]:
        """The exercises that this machine failed to judge."""
        return [r["exercise"] for r in self.exercises if r["status"] == "infrastructure"]

    @property
    def near(self) -> list[str]:
        """The exercises with an error that is close to what is tolerated."""
        return [
            record["exercise"]
            for record in self.exercises
            if any(row["message"].startswith(NEAR) for row in record["properties"])
        ]

    def for_a_person(self) -> Iterator[str]:
        """What somebody should look at."""
        if not self.listed:
            yield NOT_LISTED
        what = ((NEAR, self.near), ("infrastructure", self.ungraded), ("moved", self.moved))
        yield from (f"{word}: {', '.join(names)}" for word, names in what if names)


@dataclass(frozen=True)
class Entries:
    """All students, one at a time, as often as somebody asks."""

    results: Results
    roster: Roster | None
    before: Before

    def __iter__(self) -> Iterator[Entry]:
        """Students in the order of their files."""
        for name, result in self.results.named():
            person = self.roster.person(result["student"]) if self.roster else None
            yield Entry(
                name,
                result,
                person or Person(result["student"]),
                person is not None or self.roster is None,
                self.before.difference(name, result),
                tuple(self.before.moved(name, result)),
            )

    @property
    def title(self) -> str:
        """What this assignment is called: the folder of results."""
        return self.results.folder.resolve().name or "jaxpar"
