"""The folder of results: one JSON file per student, from which everything else is written."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jaxpar.classroom.handins import Handin
from jaxpar.classroom.records import clean
from jaxpar.grading.files import write_atomically

MOST_SPELLED = 60
MOST_LOST = 5  # exercises that a message names
_PLAIN = re.compile(r"[\w@+=,-][\w@+=,. -]{0,150}", re.ASCII)


class Results:
    """A folder of results; reading it again gives what was written."""

    def __init__(self, folder: Path) -> None:
        """Uses this folder, which need not exist."""
        self.folder = folder

    def write(self, handin: Handin, records: Sequence[dict[str, Any]], level: int) -> None:
        """Writes a student's result.

        Raises:
            OSError: the folder cannot be written; the result is as it was.
        """
        data = {
            "student": clean(handin.student, 200),
            "score": sum(r["score"] for r in records),
            "max_score": sum(r["max_score"] for r in records),
            "level": level,
            "exercises": list(records),
            "ignored": [clean(path, 200) for path in handin.ignored],
        }
        text = json.dumps(data, indent=1)
        write_atomically(self.folder / "students" / file_name(handin.student), text.encode())

    def before(self, student: str) -> dict[str, dict[str, Any]]:
        """The records of an earlier run, by exercise."""
        data = load(self.folder / "students" / file_name(student))
        return {r["exercise"]: r for r in data["exercises"]} if data else {}

    def level(self, student: str) -> int:
        """The level of isolation of an earlier run; 0 if there was none."""
        data = load(self.folder / "students" / file_name(student))
        return data["level"] if data else 0

    def check_kept(self, students: Iterable[str], exercises: Collection[str]) -> None:
        """Sees to it that a run on these exercises drops no verdict of these students.

        Raises:
            ValueError: there is a verdict on another exercise.
        """
        known = (name for student in students for name in self.before(student))
        lost = [name for name in dict.fromkeys(known) if name not in exercises]
        if lost:
            more = f" and {len(lost) - MOST_LOST} more" if len(lost) > MOST_LOST else ""
            raise ValueError(
                f"grade: {self.folder} has verdicts on {', '.join(lost[:MOST_LOST])}{more}, which "
                "this run would drop; name these exercises, too (what was judged is not judged "
                "again), or use another --out, which --merge can join with this one"
            )

    def tidy(self) -> None:
        """Removes what a killed run left half-written."""
        for path in (self.folder / "students").glob(".*"):
            path.unlink(missing_ok=True)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every student's result, in the order of their names, one at a time."""
        return (result for _, result in self.named())

    def named(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The same, each with the name of its file, which is unlike any other student's."""
        for path in sorted((self.folder / "students").glob("*.json")):
            if data := load(path):
                yield path.stem, data

    def others(self, students: Iterable[str]) -> list[str]:
        """Who has a result here, and is none of these."""
        these = {file_name(student).removesuffix(".json") for student in students}
        return [result["student"] for name, result in self.named() if name not in these]


def file_name(student: str) -> str:
    """The file of a student's result; what no file name should have is spelled in bytes."""
    if _PLAIN.fullmatch(student):
        return f"{student}.json"
    data = student.encode(errors="surrogateescape")
    spelled = "".join(
        chr(byte) if chr(byte).isascii() and chr(byte).isalnum() else f"%{byte:02x}"
        for byte in data[:MOST_SPELLED]
    )
    rest = hashlib.sha256(data).hexdigest()[:16] if len(data) > MOST_SPELLED else ""
    return f"{spelled}{rest}.json"


def load(path: Path) -> dict[str, Any] | None:
    """A result in a file; None if there is none."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
