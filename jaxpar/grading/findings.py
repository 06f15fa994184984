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


@dataclass(frozen=True)
class Finding:
    """One property as seen: right, wrong, or (None) not reached."""

    right: bool | None
    message: str
    expected: str = ""
    got: str = ""


HIDDEN = {
    "values": "values are wrong",
    "gradient": "the gradient is wrong",
    "sharding": "devices do not hold their own parts",
    "communication": "it sends more than it must",
    "memory": "intermediate results take too much memory",
    "flops": "it computes more than it must",
}


def hide(name: str, finding: Finding) -> Finding:
    """What may be told of a finding about a hidden case: the property, and how it is wrong."""
    if finding.right is not False:
        return Finding(finding.right, "right on hidden cases too" if finding.right else "")
    how = HIDDEN[name]
    return Finding(False, f"on a hidden case, of another mesh or size, {how}")


@dataclass
class Findings:
    """The findings of one answer, by property; a wrong one is never overwritten."""

    contract: Contract
    by_name: dict[str, Finding] = field(default_factory=dict)

    def add(self, name: str, finding: Finding) -> None:
        """Files a finding of one case: the first wrong one stays, or else the first."""
        if name not in self.by_name or (finding.right is False and not self.wrong(name)):
            self.by_name[name] = finding

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


def unjudged(contract: Contract, status: Status, message: str, printed: str = "") -> Judgement:
    """The judgement on an answer of which nothing but this can be said."""
    findings = Findings(contract)
    findings.add(contract.first, Finding(False, message))
    return Judgement(status, findings.properties(), message, printed=printed)
