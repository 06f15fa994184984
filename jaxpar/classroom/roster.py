"""The roster: an instructor's list of students in a CSV file, as spreadsheets write it."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from jaxpar.classroom.untrusted_text import safe_line

COLUMNS = ("student", "name", "id", "email", "section", "late_days")


@dataclass(frozen=True)
class RosterRow:
    """One row of the roster; `student` is the name of the student's folder."""

    student: str
    name: str = ""
    id: str = ""
    email: str = ""
    section: str = ""
    late_days: int | None = None


@dataclass(frozen=True)
class Roster:
    """All rows of a roster.

    Attributes:
        rows: the rows by the student's folder, in the order of the file.
        unused: the columns that nothing is done with.
    """

    rows: dict[str, RosterRow] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    def row_of(self, student: str) -> RosterRow | None:
        """Returns the row of a student, or None if they are not in the roster.

        A row is found by its column `student`; where a learning platform gave the name, also by
        `email` or `id` if no other row has the same.
        """
        key = _key(student)
        return self.rows.get(key) or self._otherwise.get(key.lower())

    @cached_property
    def _otherwise(self) -> dict[str, RosterRow | None]:
        """The rows by what else a platform calls a student; None where several have the same."""
        found: dict[str, RosterRow | None] = {}
        for row in self.rows.values():
            for word in {_key(text).lower() for text in (row.email, row.id) if text}:
                found[word] = None if word in found else row
        return found

    def absent(self, students: Iterable[str]) -> list[str]:
        """Returns the students who are in the roster and handed in nothing."""
        there = {row.student for student in students if (row := self.row_of(student))}
        return [row.student for row in self.rows.values() if row.student not in there]


def read_roster(path: Path) -> Roster:
    """Reads a roster in UTF-8, with commas, semicolons or tabs between its columns.

    Raises:
        ValueError: it cannot be read, has no column `student`, names a student twice, or has
            something else where a number must be.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"roster {path}: {error.strerror}; give a CSV file") from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"roster {path}: byte {error.start} is not UTF-8; save it as CSV in UTF-8"
        ) from None
    try:
        return _parse(text)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"roster {path}: {error}") from None


def _parse(text: str) -> Roster:
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header = [name.strip().lower().replace(" ", "_") for name in next(lines, [])]
    if "student" not in header:
        names = ", ".join(map(safe_line, header)) or "no columns"
        raise ValueError(
            f"the first line has {names}; it must have `student`, the name of the folder, and may "
            f"have {', '.join(COLUMNS[1:])}"
        )
    twice = next((name for name in COLUMNS if header.count(name) > 1), None)
    if twice:
        raise ValueError(f"two columns are called {twice}; leave one of them")
    rows: dict[str, RosterRow] = {}
    for where, cells in _not_empty(lines):
        if len(cells) > len(header):
            raise ValueError(f"{where} has {len(cells)} cells, the first line {len(header)}")
        row = _row(where, dict(zip(header, cells, strict=False)))
        if _key(row.student) in rows:
            raise ValueError(f"{where}: {safe_line(row.student)!r} is there twice; leave one row")
        rows[_key(row.student)] = row
    return Roster(rows, tuple(safe_line(name) for name in header if name and name not in COLUMNS))


def _not_empty(lines: Iterator[list[str]]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines, 2):
        cells = [cell.strip() for cell in line]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            yield f"row {number}", cells


def _row(where: str, cells: dict[str, str]) -> RosterRow:
    student = cells.get("student", "")
    if not student or student.startswith(".") or "/" in student or "\0" in student:
        raise ValueError(
            f"{where}: student is {safe_line(student)!r}; it must be the name of a folder in "
            "SUBMISSIONS"
        )
    texts = {name: cells.get(name, "") for name in ("name", "id", "email", "section")}
    days = cells.get("late_days", "")
    if days and not (days.isascii() and days.isdigit() and len(days) < 5):
        raise ValueError(
            f"{where}: late_days of {safe_line(student)} is {safe_line(days)!r}; write a whole "
            "number of days"
        )
    return RosterRow(student, **texts, late_days=int(days) if days else None)


def _key(student: str) -> str:
    """Returns one spelling of a name whose accents can be spelled in two ways."""
    return unicodedata.normalize("NFC", student)
