"""The list of students that an instructor has: a CSV file, as spreadsheets write it."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jaxpar.classroom.untrusted_text import line

COLUMNS = ("student", "name", "id", "email", "section", "late_days")


@dataclass(frozen=True)
class Person:
    """A row of the roster; `student` is the name of the folder."""

    student: str
    name: str = ""
    id: str = ""
    email: str = ""
    section: str = ""
    late_days: int | None = None


@dataclass(frozen=True)
class Roster:
    """All rows, by the student's folder.

    Attributes:
        people: in the order of the file.
        unused: columns that nothing is done with.
    """

    people: dict[str, Person] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    def person(self, student: str) -> Person | None:
        """The row of a folder; None if it is not in the roster."""
        return self.people.get(_key(student))

    def absent(self, students: Iterable[str]) -> list[str]:
        """Who is in the roster and has no folder."""
        there = {_key(student) for student in students}
        return [person.student for key, person in self.people.items() if key not in there]


def read_roster(path: Path) -> Roster:
    """Reads a roster: comma, semicolon or tab between columns, in UTF-8.

    Raises:
        ValueError: it cannot be read, has no column `student`, names a student twice, or has a
            number that is none.
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
        return _read(text)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"roster {path}: {error}") from None


def _read(text: str) -> Roster:
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header = [name.strip().lower().replace(" ", "_") for name in next(rows, [])]
    if "student" not in header:
        names = ", ".join(line(name) for name in header) or "no columns"
        raise ValueError(
            f"the first line has {names}; it must have `student`, the name of the folder, and may "
            f"have {', '.join(COLUMNS[1:])}"
        )
    twice = next((name for name in COLUMNS if header.count(name) > 1), None)
    if twice:
        raise ValueError(f"two columns are called {twice}; leave one of them")
    people: dict[str, Person] = {}
    for where, row in _filled(rows):
        if len(row) > len(header):
            raise ValueError(f"{where} has {len(row)} cells, the first line {len(header)}")
        person = _person(where, dict(zip(header, row, strict=False)))
        if _key(person.student) in people:
            raise ValueError(f"{where}: {line(person.student)!r} is there twice; leave one row")
        people[_key(person.student)] = person
    return Roster(people, tuple(line(name) for name in header if name and name not in COLUMNS))


def _filled(rows: Iterator[list[str]]) -> Iterator[tuple[str, list[str]]]:
    for number, row in enumerate(rows, 2):
        cells = [cell.strip() for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            yield f"row {number}", cells


def _person(where: str, cells: dict[str, str]) -> Person:
    student = cells.get("student", "")
    if not student or student.startswith(".") or "/" in student or "\0" in student:
        raise ValueError(
            f"{where}: student is {line(student)!r}; it must be the name of a folder in SUBMISSIONS"
        )
    words = {name: cells.get(name, "") for name in ("name", "id", "email", "section")}
    days = cells.get("late_days", "")
    if days and not (days.isascii() and days.isdigit() and len(days) < 5):
        raise ValueError(
            f"{where}: late_days of {line(student)} is {line(days)!r}; write a whole number of days"
        )
    return Person(student, **words, late_days=int(days) if days else None)


def _key(student: str) -> str:
    """One spelling for names whose accents are spelled in two ways."""
    return unicodedata.normalize("NFC", student)
