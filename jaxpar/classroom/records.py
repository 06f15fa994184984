"""The record of a judgement: what is kept of it, without anything that differs from run to run.

The grader makes a record of the judge's verdict. The journal keeps it, it becomes a part of the
student's result, and all reports are written from records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from jaxpar.classroom.marks import BY_HAND
from jaxpar.classroom.untrusted_text import printable
from jaxpar.grading.verdict import Verdict

UNGRADED = "This machine failed while it judged the file; that is not its fault. Ask for a re-run."
UNREAD = "This machine could not read it; that is not the student's fault."
WHOLE_ANSWER = "answer"
_FRACTION = re.compile(r"(?<![\w.,])-?\d[\d,]*(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?!\w|\.\d)")
_PATH = re.compile(r"(?<![\w)\]])(?:/[\w.@+-]+){2,}/?")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


def to_record(verdict: Verdict) -> dict[str, Any]:
    """Returns the verdict as `jaxpar check --json` prints it, without what is not reproducible."""
    return reproducible(verdict.to_dict() | {"seconds": 0, "seed": 0})


def reproducible(value: Any) -> Any:
    """Returns plain data whose texts are printable and hold no raw fraction, path or address."""
    if isinstance(value, str):
        text = _ADDRESS.sub("0x...", _PATH.sub(_last_name, printable(value)))
        return _FRACTION.sub(_one_digit, text)
    if isinstance(value, dict):
        return {key: reproducible(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [reproducible(part) for part in value]
    return value


def _one_digit(number: re.Match[str]) -> str:
    return f"{float(number.group().replace(',', '')):.0e}"


def _last_name(path: re.Match[str]) -> str:
    return path.group().rstrip("/").rpartition("/")[2]


def not_submitted(exercise: str, max_score: int, message: str) -> dict[str, Any]:
    """Returns the record of a file that is not there, or that cannot be judged."""
    return to_record(Verdict(exercise, "not-submitted", 0, max_score, (), message, 0, 0))


def unread(exercise: str, max_score: int, message: str) -> dict[str, Any]:
    """Returns the record of a file that this machine could not read, whatever may be in it."""
    words = f"{UNREAD} {message}"
    return to_record(Verdict(exercise, "infrastructure", 0, max_score, (), words, 0, 0))


def same_verdict(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Tells whether two records have the same status, score and properties."""
    return all(one.get(key) == other.get(key) for key in ("status", "score", "properties"))


def verdict_moved(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Tells whether the same file has another verdict now than it had before."""
    file = now.get("submission_hash")
    same_file = file is not None and file == before.get("submission_hash")
    return same_file and not same_verdict(before, now)


@dataclass(frozen=True)
class PropertyResult:
    """The result of one property of an answer, or of a whole answer that was not judged.

    Attributes:
        exercise: the id of the exercise.
        name: the name of the property.
        status: `pass`, `fail`, `not-judged`, or `infrastructure`.
        score: the points earned, of `max_score`.
        text: what was found; for the first failure, also the diagnosis.
    """

    exercise: str
    name: str
    status: Literal["pass", "fail", "not-judged", "infrastructure"]
    score: int
    max_score: int
    text: str


def property_results(record: dict[str, Any]) -> Iterator[PropertyResult]:
    """Yields the results of one record; their points add up to those of the record."""
    yield from _judged_results(record)
    if "by_hand" in record:
        points, comment = record["by_hand"]["points"], record["by_hand"]["comment"]
        most = record["max_score"] if record["status"] == BY_HAND else 0
        status = "fail" if points < 0 else "pass"
        yield PropertyResult(record["exercise"], BY_HAND, status, points, most, comment)


def all_results(result: dict[str, Any]) -> Iterator[PropertyResult]:
    """Yields all that a student's points are made of; they add up to the student's score."""
    for record in result["exercises"]:
        yield from property_results(record)
    yield from adjustment_results(result)


def adjustment_results(result: dict[str, Any]) -> Iterator[PropertyResult]:
    """Yields what concerns a student and no exercise, such as being late."""
    for made in result.get("adjustments", ()):
        status = "fail" if made["score"] < 0 else "pass"
        yield PropertyResult("hand-in", made["name"], status, made["score"], 0, made["text"])


def _judged_results(record: dict[str, Any]) -> Iterator[PropertyResult]:
    exercise, diagnosis, most = record["exercise"], record["diagnosis"], record["max_score"]
    if record["status"] == BY_HAND:
        return
    if record["status"] == "infrastructure":
        words = diagnosis if diagnosis.startswith(UNREAD) else UNGRADED
        yield PropertyResult(exercise, WHOLE_ANSWER, "infrastructure", 0, most, words)
        return
    if not record["properties"]:
        yield PropertyResult(exercise, WHOLE_ANSWER, "fail", 0, most, diagnosis)
        return
    for row in record["properties"]:
        lines = [row["message"]]
        found = ((word, row[word]) for word in ("expected", "got"))
        lines += [f"{word}: {value}" for word, value in found if value not in row["message"]]
        if row["status"] == "fail" and diagnosis not in ("", row["message"]):
            lines.append(diagnosis)
            diagnosis = ""  # The diagnosis is told only once.
        text = "\n".join(filter(None, lines))
        yield PropertyResult(
            exercise, row["name"], row["status"], row["score"], row["max_score"], text
        )
