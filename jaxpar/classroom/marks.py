"""What a person adds to the grades: points, comments, overrides, and what being late costs.

It stands in one TOML file of the instructor's, which nothing here ever writes. Results on the disk
stay as they were judged; the gradebook applies the file whenever reports are written.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxpar.classroom.untrusted_text import safe_line

MARKS = "marks.toml"
BY_HAND = "by hand"
_LATE = {"percent": (int, float), "grace": int, "days": int}
_STUDENT = {"late_days": int, "score": int, "comment": str}
_EXERCISE = {"score": int, "points": int, "comment": str}
_KINDS = {int: "a whole number", str: "text", (int, float): "a number"}


@dataclass(frozen=True)
class LateRule:
    """What being late costs.

    Attributes:
        percent: of the points, for each day.
        grace: how many days cost nothing.
        days: how many days late anything counts at all; None if always.
    """

    percent: float = 0
    grace: int = 0
    days: int | None = None

    def loss(self, points: int, late_days: int) -> int:
        """Returns the points that are lost, in whole numbers and in favour of the student."""
        if self.days is not None and late_days > self.days:
            return points
        part = min(100, self.percent * max(0, late_days - self.grace))
        return math.floor(points * part / 100 + 1e-9)

    def words(self, late_days: int) -> str:
        """Says what the rule makes of so many days."""
        days = f"{late_days} day{'s' * (late_days != 1)} late"
        if self.days is not None and late_days > self.days:
            return f"{days}: nothing counts after {self.days}"
        return f"{days}, of which {self.grace} cost nothing: {self.percent:g} % of the points a day"


@dataclass(frozen=True)
class ExerciseMark:
    """What a person says of one answer; a score stands in place of what was judged."""

    score: int | None = None
    points: int = 0
    comment: str = ""


@dataclass(frozen=True)
class StudentMarks:
    """What a person says of one student; a score stands in place of everything else."""

    late_days: int | None = None
    score: int | None = None
    comment: str = ""
    exercises: Mapping[str, ExerciseMark] = field(default_factory=dict)


@dataclass(frozen=True)
class Marks:
    """All that a person adds to the grades of a class."""

    late: LateRule = LateRule()
    students: Mapping[str, StudentMarks] = field(default_factory=dict)

    def check_known(self, students: Iterable[str], exercises: Collection[str]) -> None:
        """Checks that every name in the file is one of the class.

        Raises:
            ValueError: a student or an exercise is unknown.
        """
        known = set(students)
        for student, marks in self.students.items():
            if student not in known:
                raise ValueError(
                    f"{MARKS}: students.{safe_line(student)}: nobody is called so; use the "
                    "student's name as class.csv has it"
                )
            unknown = [name for name in marks.exercises if name not in exercises]
            if unknown:
                raise ValueError(
                    f"{MARKS}: students.{safe_line(student)}.{safe_line(unknown[0])}: no exercise "
                    f"of this class; it has {', '.join(exercises)}"
                )

    def late_days(self, student: str, roster_days: int | None) -> int | None:
        """Returns how late a student is: the file's word before the roster's."""
        marks = self.students.get(student)
        return roster_days if marks is None or marks.late_days is None else marks.late_days

    def applied(self, result: dict[str, Any], late_days: int | None) -> dict[str, Any]:
        """Returns a student's result with everything that this file adds.

        Its records have the scores that count, and `by_hand` where a person had a say. Its
        `adjustments` are what concerns the student and no exercise; `judged` is the score before.
        """
        marks = self.students.get(result["student"], StudentMarks())
        records = [_marked(r, marks.exercises.get(r["exercise"])) for r in result["exercises"]]
        score = sum(record["score"] for record in records)
        adjustments = []
        if late_days and (loss := self.late.loss(score, late_days)):
            adjustments.append(_adjustment("late", -loss, self.late.words(late_days)))
        if marks.score is not None:
            before = score + sum(a["score"] for a in adjustments)
            adjustments.append(_adjustment(BY_HAND, marks.score - before, "the score in all"))
        if marks.comment:
            adjustments.append(_adjustment("comment", 0, marks.comment))
        return result | {
            "judged": result["score"],
            "score": score + sum(a["score"] for a in adjustments),
            "exercises": records,
            "adjustments": adjustments,
        }


def read_marks(folder: Path) -> Marks:
    """Reads the instructor's file in a folder of results; without one, nothing is added.

    Raises:
        ValueError: it cannot be read, or holds something else than marks.
    """
    path = folder / MARKS
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return Marks()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; make it readable, or remove it") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}; see docs/classroom.md for its form") from None
    try:
        return _marks(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _marks(data: dict[str, Any]) -> Marks:
    other = data.keys() - {"late", "students"}
    if other:
        raise ValueError(f"{safe_line(min(other))}: only [late] and [students.NAME] may stand here")
    late = _fields("late", _table("late", data.get("late", {})), _LATE)
    for name, value in late.items():
        if value < 0 or (name == "percent" and value > 100):
            raise ValueError(
                f"late.{name}: {value}; write a number from 0, and at most 100 percent"
            )
    students = _table("students", data.get("students", {}))
    return Marks(LateRule(**late), {name: _student(name, row) for name, row in students.items()})


def _student(name: str, data: Any) -> StudentMarks:
    where = f"students.{safe_line(name)}"
    data = _table(where, data)
    exercises = {key: value for key, value in data.items() if isinstance(value, dict)}
    own = _fields(where, {key: data[key] for key in data.keys() - exercises}, _STUDENT)
    marks = {
        key: ExerciseMark(**_fields(f"{where}.{safe_line(key)}", value, _EXERCISE))
        for key, value in exercises.items()
    }
    return StudentMarks(**own, exercises=marks)


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {safe_line(repr(value))}; it must be a table, [{where}]")
    return value


def _fields(where: str, data: dict[str, Any], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a table of which all keys are known and all values of their kind."""
    for key, value in data.items():
        if key not in kinds:
            raise ValueError(f"{where}.{safe_line(key)}: no such key; there is {', '.join(kinds)}")
        if not isinstance(value, kinds[key]) or isinstance(value, bool):
            kind = _KINDS[kinds[key]]
            raise ValueError(f"{where}.{key}: {safe_line(repr(value))}; it must be {kind}")
    return data


def _marked(record: dict[str, Any], mark: ExerciseMark | None) -> dict[str, Any]:
    """Returns a record with what a person says of the answer."""
    if mark is None:
        return record
    judged = record["score"]
    score = max(0, (judged if mark.score is None else mark.score) + mark.points)
    unjudged = record["status"] in ("infrastructure", "not-submitted")
    return record | {
        "score": score,
        "status": BY_HAND if unjudged and mark.score is not None else record["status"],
        "by_hand": {"points": score - judged, "comment": mark.comment},
    }


def _adjustment(name: str, score: int, text: str) -> dict[str, Any]:
    return {"name": name, "score": score, "text": text}
