"""What the judge says about one answer.

Grading ends with a verdict: a frozen value with everything that a writer may show on a
screen or in a file, so that no writer needs to ask the judge.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from jaxpar.contracts.base import Quantity

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
class Measured:
    """What an answer to the first case costs, and what the library's costs.

    Attributes:
        quantity: what was measured.
        case: the mesh of the case, or the call.
        value: the number of the answer.
        library: that of the library.
        challenge: whether a right answer may lower it further and further.
    """

    quantity: Quantity
    case: str
    value: int
    library: int
    challenge: bool = False

    def in_words(self, number: float) -> str:
        """Returns a number of this quantity with its unit, if it has one."""
        return f"{number:,}" if self.quantity == "makespan" else in_bytes(number)


@dataclass(frozen=True)
class Judgement:
    """What a judge of one kind of exercise found; becomes a `Verdict`."""

    status: Status
    properties: tuple[PropertyVerdict, ...]
    diagnosis: str = ""
    measured: Measured | None = None
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
        measured: what a device sent, where the exercise communicates; or the number of a challenge.
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
    measured: Measured | None = None
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
        measured = Measured(**data["measured"]) if data["measured"] else None
        return cls(**{**data, "properties": properties, "measured": measured})
