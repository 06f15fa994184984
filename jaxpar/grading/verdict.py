"""What the judge says about one answer.

Grading ends with a verdict: a frozen value with everything that a writer may show on a
screen or in a file, so that no writer needs to ask the judge.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Cause = Literal["killed", "timeout", "protocol", "memory"]
Status = Literal[
    "pass", "fail", "error", "timeout", "memory", "killed", "protocol", "not-submitted",
    "infrastructure",
]  # fmt: skip


def in_bytes(count: float) -> str:
    """Returns a number of bytes in words, as every verdict writes it."""
    return f"{count:,.1f}".removesuffix(".0") + " bytes"


@dataclass(frozen=True)
class PropertyVerdict:
    """The verdict on one property: what was expected, what was seen, and the points."""

    name: str
    status: Literal["pass", "fail", "not-judged"]
    score: int
    max_score: int
    message: str
    expected: str = ""
    got: str = ""


@dataclass(frozen=True)
class Sent:
    """Wire bytes of one device in one forward call of the first case, also of the library's."""

    case: str
    measured_bytes: int
    library_bytes: int


@dataclass(frozen=True)
class Judgement:
    """What a judge of one kind of exercise found; becomes a `Verdict`."""

    status: Status
    properties: tuple[PropertyVerdict, ...]
    diagnosis: str = ""
    sent: Sent | None = None
    printed: str = ""


@dataclass(frozen=True)
class Verdict:
    """The judgement of one answer.

    Attributes:
        exercise: id of the exercise.
        status: `pass`, `fail`, or why it could not be judged to the end.
        score: points earned, of `max_score`.
        properties: one entry per property of the contract, in order.
        diagnosis: what went wrong in one paragraph: a named mistake or a translated error.
        seconds: wall time of the judgement.
        seed: repeats the run.
        sent: what a device sent, where the exercise communicates.
        printed: what the answer printed while it was traced, at most 4 kB.
    """

    exercise: str
    status: Status
    score: int
    max_score: int
    properties: tuple[PropertyVerdict, ...]
    diagnosis: str
    seconds: float
    seed: int
    sent: Sent | None = None
    printed: str = ""

    @property
    def passed(self) -> bool:
        """Whether every property passed."""
        return self.status == "pass"

    def first_failure(self) -> PropertyVerdict | None:
        """The first property that failed, if any."""
        return next((p for p in self.properties if p.status == "fail"), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self) | {"properties": [asdict(p) for p in self.properties]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verdict:
        """The inverse of `to_dict`; raises TypeError or KeyError on other data."""
        properties = tuple(PropertyVerdict(**p) for p in data["properties"])
        sent = Sent(**data["sent"]) if data["sent"] else None
        return cls(**{**data, "properties": properties, "sent": sent})
