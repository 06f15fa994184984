"""What was found about each property, and the points that it earns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from jaxpar.contracts.base import Contract
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
    "Look for a size, a root, a device or the name of an axis that is written into it."
)


@dataclass(frozen=True)
class Finding:
    """What was found about one property.

    Attributes:
        right: whether it is right; None where it was not reached.
        message: what a person reads.
        expected: what is required, if that is short.
        got: what was found, if that is short.
        how: the kind of error, of which nothing else is told where its case is hidden.
        near: right, with an error of more than half of what is allowed.
        hidden: the case is hidden.
    """

    right: bool | None
    message: str
    expected: str = ""
    got: str = ""
    how: str = ""
    near: bool = False
    hidden: bool = False


def hide(name: str, finding: Finding) -> Finding:
    """What may be told of a finding about a hidden case: the property, and the kind of error."""
    how = finding.how or HIDDEN[name] if finding.right is False else NEAR * finding.near
    message = f"{how} on a hidden case" if how else ""
    return Finding(finding.right, message, near=finding.near, hidden=True)


@dataclass
class Findings:
    """The findings of one answer, by property; a wrong one is never overwritten."""

    contract: Contract
    by_name: dict[str, Finding] = field(default_factory=dict)

    def add(self, name: str, finding: Finding, index: int | None = None) -> None:
        """Files a finding: the first wrong one stays, or else the first near the limit, or any.

        Args:
            name: of the property.
            finding: what was found.
            index: of the case that it is about, if it is about one.
        """
        if index is not None and self.contract.is_hidden(index):
            finding = hide(name, finding)
        if name not in self.by_name or _weight(finding) > _weight(self.by_name[name]):
            self.by_name[name] = finding

    def shown_only(self) -> bool:
        """Whether what is wrong first is so on hidden cases only."""
        names = self.contract.points()
        first = next((self.by_name[name] for name in names if self.wrong(name)), None)
        return first is not None and first.hidden

    def wrong(self, name: str) -> bool:
        """Whether a property was found wrong."""
        return name in self.by_name and self.by_name[name].right is False

    def properties(self) -> tuple[PropertyVerdict, ...]:
        """One verdict per property of the contract; points only when the first is right."""
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


def _weight(finding: Finding) -> int:
    """The weight of a finding; of two, the heavier one is told."""
    return 2 if finding.right is False else int(finding.near)


def unjudged(contract: Contract, status: Status, message: str, printed: str = "") -> Judgement:
    """The judgement on an answer about which nothing but this message can be said."""
    findings = Findings(contract)
    findings.add(contract.first, Finding(False, message))
    return Judgement(status, findings.properties(), message, printed=printed)
