"""A result as a list of checks, as autograders and test reports want it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

UNGRADED = "This machine failed while it judged the file; that is not its fault. Ask for a re-run."
WHOLE = "answer"


@dataclass(frozen=True)
class Check:
    """One property of one answer; of an answer that was not judged, the whole.

    Attributes:
        exercise: id of the exercise.
        name: of the property.
        status: `pass`, `fail`, `not-judged`, or `infrastructure`.
        score: points earned, of `max_score`.
        text: what was found; the first that failed tells what went wrong.
    """

    exercise: str
    name: str
    status: Literal["pass", "fail", "not-judged", "infrastructure"]
    score: int
    max_score: int
    text: str


def checks(record: dict[str, Any]) -> Iterator[Check]:
    """The checks of one verdict; their points add up to the verdict's."""
    exercise, diagnosis = record["exercise"], record["diagnosis"]
    if record["status"] == "infrastructure":
        yield Check(exercise, WHOLE, "infrastructure", 0, record["max_score"], UNGRADED)
        return
    if not record["properties"]:
        yield Check(exercise, WHOLE, "fail", 0, record["max_score"], diagnosis)
        return
    for row in record["properties"]:
        lines = [row["message"]]
        seen = ((word, row[word]) for word in ("expected", "got"))
        lines += [f"{word}: {value}" for word, value in seen if value not in row["message"]]
        if row["status"] == "fail" and diagnosis not in ("", row["message"]):
            lines.append(diagnosis)
            diagnosis = ""  # said once
        text = "\n".join(filter(None, lines))
        yield Check(exercise, row["name"], row["status"], row["score"], row["max_score"], text)
