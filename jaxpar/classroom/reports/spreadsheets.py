"""The class as one table, for a spreadsheet: a row for each student."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from jaxpar.classroom.gradebook import Entry
from jaxpar.classroom.untrusted_text import cell

HEADER = (
    "student", "name", "id", "email", "section", "late_days", "score", "max_score", "difference",
    "attention",
)  # fmt: skip
MARK = "\ufeff"  # without it, Excel takes UTF-8 for something else


def rows(entries: Iterable[Entry], exercises: Iterable[str]) -> Iterator[bytes]:
    """The file, line by line; an empty cell is an answer that nobody could judge."""
    wanted = list(exercises)
    yield (MARK + csv_line([*HEADER, *wanted])).encode()
    for entry in entries:
        yield csv_line(_row(entry, wanted)).encode()


def csv_line(cells: Iterable[Any]) -> str:
    """A line of a CSV file; texts are never formulas, and an absent number is empty."""
    out = io.StringIO()
    safe = [cell(one) if isinstance(one, str) else "" if one is None else one for one in cells]
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow(safe)
    return out.getvalue()


def _row(entry: Entry, exercises: list[str]) -> list[Any]:
    person, result = entry.person, entry.result
    scores = {r["exercise"]: r["score"] for r in entry.exercises}
    scores |= dict.fromkeys(entry.ungraded)
    return [
        result["student"], person.name, person.id, person.email, person.section, person.late_days,
        result["score"], result["max_score"], entry.difference, "; ".join(entry.for_a_person()),
        *(scores.get(exercise) for exercise in exercises),
    ]  # fmt: skip
