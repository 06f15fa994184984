"""The gradebook of Canvas: a CSV file for its import, with one assignment.

The format is that of canvas-lms, lib/gradebook_importer.rb.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from jaxpar.classroom.gradebook import Entry
from jaxpar.classroom.reports.spreadsheets import csv_line

HEADER = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
POINTS = "Points Possible"


def rows(entries: Iterable[Entry], title: str, max_score: int) -> Iterator[bytes]:
    """The file, line by line.

    ID stays empty: it is Canvas's own number, and another's would name another student. A student
    whom this machine failed to grade keeps the grade that is there, and so does who is not in the
    roster.
    """
    yield csv_line([*HEADER, title]).encode()
    yield csv_line([f"    {POINTS}", "", "", "", "", max_score]).encode()
    for entry in entries:
        if entry.listed and not entry.ungraded:
            person = entry.person
            name = _name(person.name or person.student)
            ids = ("", person.id, person.email, person.section)
            yield csv_line([name, *ids, entry.result["score"]]).encode()


def _name(name: str) -> str:
    """A name that Canvas does not take for the row of points."""
    return re.sub(POINTS, "Points-Possible", name)
