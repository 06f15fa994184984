"""Judges an SPMD function by the programs that were exported from it.

`judge` calls this with the worker's evidence and a reader, and makes a verdict of the findings. For
a wrong answer, `diagnosis` goes on from what is stored here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from jaxpar.contracts.base import Contract
from jaxpar.grading import properties
from jaxpar.grading.evidence import Evidence, public_name
from jaxpar.grading.findings import Finding, Findings
from jaxpar.grading.messages import Output, ProgramKey
from jaxpar.grading.oracle import Blocks, Truth
from jaxpar.grading.program_export import differentiated
from jaxpar.grading.reader_client import ReaderClient, Refusal, cotangent_inputs
from jaxpar.grading.reader_messages import Author, Facts
from jaxpar.grading.verdict import Measured


@dataclass
class ProgramJudge:
    """Judges the evidence about one answer, with one reader.

    Attributes:
        contract: the exercise.
        reader: the process that reads and runs the programs.
        evidence: what the worker sent.
        findings: what was found about each property.
        truth_of: draws the inputs of a case, and computes the right results. It is called after
            the evidence is complete, so that no answer can depend on the inputs.
        answer: facts of the answer's programs.
        reference: facts of the reference's programs.
        results: outputs of each forward program, gradients of each gradient program.
        truths: inputs and right results of each case that was run.
        judged: the numbers of the cases that were judged.
        measured: the number of the challenge, or else what a device sends, in the first case.
    """

    contract: Contract
    reader: ReaderClient
    evidence: Evidence
    findings: Findings
    truth_of: Callable[[int], Truth]
    answer: dict[ProgramKey, Facts] = field(default_factory=dict)
    reference: dict[ProgramKey, Facts] = field(default_factory=dict)
    results: dict[ProgramKey, list[Blocks]] = field(default_factory=dict)
    truths: dict[int, Truth] = field(default_factory=dict)
    judged: list[int] = field(default_factory=list)
    measured: Measured | None = None

    def judge(self) -> None:
        """Fills the findings, case by case; at home, drawn cases follow if all else is right."""
        for indices in self.contract.rounds():
            if not self.findings.any_wrong():
                self._judge_cases(indices)
        for i, bad in enumerate(self.contract.errors):
            outcome = self.evidence.errors.get(i)
            self.findings.add("errors", properties.judge_error(bad.because, outcome))

    def run_gradient(
        self, author: Author, program: ProgramKey, outputs: Sequence[Output]
    ) -> tuple[list[Blocks], list[Blocks]]:
        """Runs a gradient program on the drawn inputs and cotangents; returns both results."""
        case, true = self.contract.cases[program[1]], self.truths[program[1]]
        leaves = [leaf for _, leaf in differentiated(case, self.contract.gradient).values()]
        gradients = [
            Output(target.shape[len(case.sizes) :], leaf.dtype, varying=())
            for leaf, target in zip(leaves, true.gradients, strict=True)
        ]
        inputs = true.inputs + cotangent_inputs(case, outputs, true.cotangents)
        results = self.reader.run(author, program, inputs, [*outputs, *gradients])
        return results[: len(outputs)], results[len(outputs) :]

    def _judge_cases(self, indices: range) -> None:
        programs = [program for index in indices for program in _programs(self.contract, index)]
        sent = {
            key: self.evidence.programs[key] for key in programs if key in self.evidence.programs
        }
        known = _references(self.contract)
        # The reader works through these in order, the answer last, while this process computes.
        self.reader.begin_exports(program for program in programs if program not in known)
        self.reader.begin_reads(sent)
        for index in indices:
            if ("forward", index) in sent:
                self.truths[index] = self.truth_of(index)
        for program in programs:
            if program not in known:
                known[program] = self.reader.export("reference", program)
            self.reference[program] = known[program]
        for index in indices:
            self.judged.append(index)
            self._judge_case(index)

    def _judge_case(self, index: int) -> None:
        """Judges every property of one case from the same programs whose outputs are compared."""
        contract, case = self.contract, self.contract.cases[index]
        forward: ProgramKey = ("forward", index)
        if not self._read(forward, "values"):
            return
        true, facts = self.truths[index], self.answer[forward]
        try:
            got = self.reader.run("answer", forward, true.inputs, facts.outputs)
        except Refusal as refusal:
            return self._cannot_be_run("values", index, refusal)
        self.results[forward] = got
        finding, whole = properties.judge_values(
            contract, case, true, facts, self.reference[forward], got
        )
        self.findings.add("values", finding, index)
        if contract.sharding and finding.right:
            self.findings.add("sharding", properties.judge_sharding(whole), index)
        if ("gradient", index) in _programs(contract, index):
            if whole:
                finding = Finding(None, "not judged: the result is not sharded")
                self.findings.add("gradient", finding, index)
            elif finding.right:
                self._judge_gradient(index)
        self._judge_cost(index)

    def _judge_cost(self, index: int) -> None:
        """Judges what the programs of a case send, compute and hold, even if values are wrong."""
        contract, case = self.contract, self.contract.cases[index]
        answer = {w: f for (w, i), f in self.answer.items() if i == index}
        reference = {w: f for (w, i), f in self.reference.items() if i == index}
        if contract.communication:
            rule = contract.communication
            finding = properties.judge_communication(rule, case, answer, reference)
            self.findings.add("communication", finding, index)
        if contract.flops:
            finding = properties.judge_flops(contract.flops, case, answer, reference)
            self.findings.add("flops", finding, index)
        if contract.memory:
            finding = properties.judge_memory(contract.memory, case, answer, reference)
            self.findings.add("memory", finding, index)
        if index == 0:
            self.measured = properties.measure(contract, case, answer, reference)

    def _judge_gradient(self, index: int) -> None:
        program: ProgramKey = ("gradient", index)
        if not self._read(program, "gradient"):
            return
        facts = self.answer[program]
        try:
            outputs, gradients = self.run_gradient("answer", program, facts.outputs)
        except Refusal as refusal:
            return self._cannot_be_run("gradient", index, refusal)
        self.results[program] = gradients
        case, true = self.contract.cases[index], self.truths[index]
        finding = properties.judge_gradient(self.contract, case, true, facts, outputs, gradients)
        self.findings.add("gradient", finding, index)

    def _read(self, program: ProgramKey, name: str) -> bool:
        """Reads a program unless it was read before; returns whether it can be run.

        If not, the reason is a finding about the property `name`.
        """
        if program in self.answer:
            return True
        if program not in self.evidence.programs:
            failure = self.evidence.failures.get(program)
            message = failure.message if failure else "no program was exported"
            how = f"raises {public_name(failure and failure.raised)}"
            mesh = self.contract.cases[program[1]].mesh
            self.findings.add(name, Finding(False, f"on {mesh}: {message}", how=how), program[1])
            return False
        try:
            self.answer[program] = self.reader.read(program, *self.evidence.programs[program])
        except Refusal as refusal:
            self._cannot_be_run(name, program[1], refusal)
            return False
        return True

    def _cannot_be_run(self, name: str, index: int, refusal: Refusal) -> None:
        mesh = self.contract.cases[index].mesh
        finding = Finding(False, f"on {mesh}: {refusal}", how="cannot be run")
        self.findings.add(name, finding, index)


def unknown_references(contract: Contract) -> Iterator[ProgramKey]:
    """Yields the programs of the reference that are needed first, and have not been read yet."""
    known = _references(contract)
    for index in contract.rounds()[0]:
        yield from (program for program in _programs(contract, index) if program not in known)


def _programs(contract: Contract, index: int) -> list[ProgramKey]:
    """Returns the programs that an answer has for a case."""
    programs: list[ProgramKey] = [("forward", index)]
    if differentiated(contract.cases[index], contract.gradient):
        programs.append(("gradient", index))
    return programs


@lru_cache(maxsize=512)
def _references(contract: Contract) -> dict[ProgramKey, Facts]:
    """Returns a dict of facts about the reference's programs, empty at first.

    It is the same dict for every answer to the exercise, so that each program is read only once.
    """
    del contract
    return {}
