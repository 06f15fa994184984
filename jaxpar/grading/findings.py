"""What was found about each property, and the points that it earns.

While a judge works, it adds findings here case by case. At the end they become the properties of
the verdict, and here it is also decided what is told of a drawn case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from jaxpar.contracts.base import Contract
from jaxpar.contracts.case_in_words import describe_case
from jaxpar.grading.verdict import Judgement, PropertyVerdict, Status

NOT_JUDGED = {
    "values": "not judged: values are wrong",
    "order": "not judged: the order is wrong",
}


NEAR = "near the limit"
HIDDEN = {
    "values": "values differ",
    "gradient": "the gradient differs",
    "sharding": "devices do not hold their own parts",
    "communication": "sends too much",
    "memory": "intermediate results take too much memory",
    "flops": "computes too much",
}
SHOWN_ONLY = (
    "The answer is right for the sizes shown, and wrong for others that the docstring allows. "
    "Look for what is written into it: a size, a number of devices, a root, a dtype, or a name."
)


@dataclass(frozen=True)
class Finding:
    """What was found about one property.

    Attributes:
        right: whether it is right; None where it was not judged.
        message: what a person reads.
        expected: what is required, if that is short.
        got: what was found, if that is short.
        how: the kind of error, which is all that is told of it if its case is hidden.
        near: whether it is right, but with more than half of the allowed error.
        drawn: whether its case was drawn, and is not in the stub.
    """

    right: bool | None
    message: str
    expected: str = ""
    got: str = ""
    how: str = ""
    near: bool = False
    drawn: bool = False


def hide(name: str, finding: Finding) -> Finding:
    """Returns what may be told of a finding about a hidden case: whether, and how, it is wrong."""
    how = finding.how or HIDDEN[name] if finding.right is False else NEAR * finding.near
    message = f"{how} on a hidden case" if how else ""
    return Finding(finding.right, message, near=finding.near)


@dataclass
class Findings:
    """The findings of one answer, by property; a wrong one is never overwritten."""

    contract: Contract
    by_name: dict[str, Finding] = field(default_factory=dict)

    def add(self, name: str, finding: Finding, index: int | None = None) -> None:
        """Adds a finding; for each property, only the first of the most serious ones is kept.

        A wrong finding is more serious than one near the limit, and that one than any other.

        Args:
            name: the name of the property.
            finding: what was found.
            index: the number of the case that it is about, if it is about one.
        """
        if index is not None and self.contract.is_drawn(index):
            if self.contract.hidden:
                finding = hide(name, finding)
            elif finding.right is False:
                case = describe_case(self.contract.cases[index])
                message = f"{finding.message}\n\nin a case drawn now: {case}\n"
                if self.contract.poison:
                    message += f"The judge {_what(self.contract.poison)}\n"
                finding = replace(finding, message=message)
            finding = replace(finding, drawn=True)
        if name not in self.by_name or _weight(finding) > _weight(self.by_name[name]):
            self.by_name[name] = finding

    def fails_only_on_drawn(self) -> bool:
        """Whether the first property that is wrong is wrong in drawn cases only."""
        names = self.contract.points()
        first = next((self.by_name[name] for name in names if self.wrong(name)), None)
        return first is not None and first.drawn

    def wrong(self, name: str) -> bool:
        """Whether a property was found wrong."""
        return name in self.by_name and self.by_name[name].right is False

    def any_wrong(self) -> bool:
        """Whether any property was found wrong."""
        return any(map(self.wrong, self.contract.points()))

    def properties(self) -> tuple[PropertyVerdict, ...]:
        """Returns a verdict on each property; unless the first is right, no other earns points."""
        first = self.contract.first
        judged = self.by_name.get(first, Finding(False, "")).right is True
        return tuple(
            self._verdict(name, points, judged or name == first)
            for name, points in self.contract.points().items()
        )

    def _verdict(self, name: str, points: int, judged: bool) -> PropertyVerdict:
        found = self.by_name.get(name, Finding(None, "not judged: no program to judge"))
        status: Literal["pass", "fail", "not-judged"] = "not-judged"
        message = found.message
        if not judged:
            message = NOT_JUDGED[self.contract.first]
        elif found.right is not None:
            status = "pass" if found.right else "fail"
        score = points if status == "pass" else 0
        return PropertyVerdict(name, status, score, points, message, found.expected, found.got)


def _what(poison: Callable[..., None]) -> str:
    """What is done to the inputs, as the first sentence of the docstring says."""
    sentence, *_ = (poison.__doc__ or "").split("\n\n")
    return sentence[0].lower() + sentence[1:]


def _weight(finding: Finding) -> int:
    """Returns how serious a finding is."""
    return 2 if finding.right is False else int(finding.near)


def unjudged(contract: Contract, status: Status, message: str, printed: str = "") -> Judgement:
    """Returns the judgement on an answer of which no property could be judged, and says why."""
    findings = Findings(contract)
    findings.add(contract.first, Finding(False, message))
    return Judgement(status, findings.properties(), message, printed=printed)
