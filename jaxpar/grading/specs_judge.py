"""Judges partition specs by the program that the compiler makes with them.

`judge` calls this with the worker's evidence, which holds the specs as plain data, and a reader,
which compiles the contract's program with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxpar.contracts.base import Contract
from jaxpar.contracts.case import Case
from jaxpar.grading import partition_specs, properties
from jaxpar.grading.evidence import Evidence, public_name
from jaxpar.grading.findings import Finding, Findings
from jaxpar.grading.messages import ProgramKey, RaisedByCall, ReturnedValue
from jaxpar.grading.reader_client import ReaderClient, Refusal
from jaxpar.grading.reader_messages import Facts
from jaxpar.grading.verdict import Measured, in_bytes

FITS = "a partition spec for each leaf"
SPLIT = "large leaves are split, small ones are replicated"


@dataclass
class SpecsJudge:
    """Judges the evidence about one answer, with one reader.

    The program that is compiled is our own, so that `answer` stays empty; `measured` stays None,
    since predictions are asked for programs only.
    """

    contract: Contract
    reader: ReaderClient
    evidence: Evidence
    findings: Findings
    answer: dict[ProgramKey, Facts] = field(default_factory=dict)
    measured: Measured | None = None

    def judge(self) -> None:
        """Fills the findings; at home, drawn cases follow if all else is right."""
        for indices in self.contract.rounds():
            if not self.findings.any_wrong():
                self._judge_cases([(index, self.contract.cases[index]) for index in indices])

    def diagnose(self) -> str:
        """Returns the sentence of a mistake with the same specs, or what the first error means."""
        drawn = self.findings.fails_only_on_drawn()
        cases = self.contract.cases if drawn else self.contract.visible
        for mistake in self.contract.mistakes:
            if all(
                partition_specs.same(
                    self._specs(index), partition_specs.of_ours(mistake.function, case)
                )
                for index, case in enumerate(cases)
            ):
                return mistake.sentence
        replies = (self.evidence.values.get(i) for i in range(len(self.contract.visible)))
        return next((reply.explained for reply in replies if isinstance(reply, RaisedByCall)), "")

    def _judge_cases(self, cases: Sequence[tuple[int, Case]]) -> None:
        """Judges values in all cases, then the rest until one is wrong."""
        for index, case in cases:
            reply = self.evidence.values.get(index)
            if isinstance(reply, RaisedByCall):
                wrong = f"the answer raises {reply.raised}"
                how = f"raises {public_name(reply.raised)}"
            else:
                wrong = partition_specs.complaint(case, self._specs(index))
                how = "a spec does not fit"
            message = f"on {case.mesh}, {wrong}" if wrong else FITS
            self.findings.add("values", Finding(not wrong, message, how=how), index)
        for index, case in cases:
            if not self.findings.any_wrong():
                self._judge_case(index, case)

    def _judge_case(self, index: int, case: Case) -> None:
        found = self._specs(index)
        try:
            held = self.reader.partition(index, found)
        except Refusal as refusal:
            finding = Finding(False, f"on {case.mesh}: {refusal}", how="cannot be run")
            self.findings.add("values", finding, index)
            return
        model = partition_specs.of_ours(self.contract.reference, case)
        least = self.reader.partition(index, model)
        wrong = partition_specs.wrongly_split(case, found, model)
        message = f"on {case.mesh}, {wrong}" if wrong else SPLIT
        self.findings.add("sharding", Finding(not wrong, message), index)
        if rule := self.contract.communication:
            finding = properties.judge_communication(rule, case, {"forward": held}, {})
            self.findings.add("communication", finding, index)
        self.findings.add("memory", _judge_memory(self.contract, case, held, least), index)

    def _specs(self, index: int) -> Any:
        reply = self.evidence.values.get(index)
        return reply.result if isinstance(reply, ReturnedValue) else "nothing"


def _judge_memory(contract: Contract, case: Case, answer: Facts, reference: Facts) -> Finding:
    """Judges memory: arguments may take the reference's bytes, temporaries what the limit says."""
    held, least = answer.memory, reference.memory
    assert contract.memory and held and least
    if held.arguments_bytes > least.arguments_bytes:
        limit, seen = f"at most {in_bytes(least.arguments_bytes)}", in_bytes(held.arguments_bytes)
        message = f"on {case.mesh}, parameters and state take {seen}; {limit} are allowed"
        return Finding(False, message, limit, seen)
    return properties.judge_temp_bytes(contract.memory, case, answer, reference)
