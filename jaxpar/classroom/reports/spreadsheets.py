"""CSV files: the class as one table, and the gradebook of Canvas.

The format of the latter is that of canvas-lms, lib/gradebook_importer.rb.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from jaxpar.classroom.gradebook import GradebookEntry
from jaxpar.classroom.untrusted_text import csv_cell

BYTE_ORDER_MARK = "\ufeff"  # Without it, Excel takes UTF-8 for something else.
CLASS_HEADER = (
    "student", "name", "id", "email", "section", "late_days", "score", "max_score", "judged",
    "difference", "comment", "attention",
)  # fmt: skip
CANVAS_HEADER = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
CANVAS_POINTS = "Points Possible"


def csv_line(cells: Iterable[Any]) -> str:
    """Returns a line of a CSV file; no text in it is a formula, and None is an empty cell."""
    out = io.StringIO()
    safe = [csv_cell(c) if isinstance(c, str) else "" if c is None else c for c in cells]
    csv.writer(out, quoting=csv.QUOTE_ALL).writerow(safe)
    return out.getvalue()


def class_csv(gradebook: Iterable[GradebookEntry], exercises: Iterable[str]) -> Iterator[bytes]:
    """Yields a row for each student; an empty cell is an answer that nobody could judge."""
    wanted = list(exercises)
    yield (BYTE_ORDER_MARK + csv_line([*CLASS_HEADER, *wanted])).encode()
    for entry in gradebook:
        person, result = entry.person, entry.result
        scores = {record["exercise"]: record["score"] for record in entry.records}
        scores |= dict.fromkeys(entry.ungraded)
        row = [
            result["student"], person.name, person.id, person.email, person.section,
            person.late_days, entry.score, result["max_score"], result["judged"],
            entry.difference, "; ".join(entry.comments()), "; ".join(entry.attention()),
            *(scores.get(exercise) for exercise in wanted),
        ]  # fmt: skip
        yield csv_line(row).encode()


def canvas_csv(gradebook: Iterable[GradebookEntry], title: str, max_score: int) -> Iterator[bytes]:
    """Yields the lines of an import into Canvas with one assignment.

    The column ID stays empty, since it is Canvas's own number, and another number would name
    another student. Whoever this machine failed to grade keeps the grade that is there, and so
    does whoever is not in the roster.
    """
    yield csv_line([*CANVAS_HEADER, title]).encode()
    yield csv_line([f"    {CANVAS_POINTS}", "", "", "", "", max_score]).encode()
    for entry in gradebook:
        if entry.listed and entry.score is not None:
            person = entry.person
            # Canvas takes a row whose name holds these words for the row of points.
            name = (person.name or person.student).replace(CANVAS_POINTS, "Points-Possible")
            row = [name, "", person.id, person.email, person.section, entry.score]
            yield csv_line(row).encode()
