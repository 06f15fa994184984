"""Right answers judged with many seeds: exported and compiled once, run with each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from unittest.mock import patch

from jaxpar.contracts.base import load
from jaxpar.grading import oracle, program_judge, reading
from jaxpar.grading.evidence import collect, worker_job
from jaxpar.grading.findings import Findings
from jaxpar.grading.judge import judge
from jaxpar.grading.program_judge import ProgramJudge
from jaxpar.grading.session import ReaderSession
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import PropertyVerdict
from tests.in_process import FILE, InProcessPool, template

Answer = Callable[..., object]
FOUND = Submission(FILE, b"# elsewhere")


class Runner(ProgramJudge):
    """Judges programs that were read before, by their results alone."""

    def judge(self) -> None:
        """Runs every case, hidden ones too."""
        for index in range(len(self.contract.cases)):
            self._judge_case(index)

    def _read(self, program: tuple[str, int], name: str) -> bool:
        return program in self.answer


def failures(where: str, answers: list[Answer], seeds: range) -> Iterator[str]:
    """What is wrong, or near the limit, with right answers to an exercise."""
    kind = load(where).kind
    judged = _plain if kind in ("value", "schedule") else _programs
    for seed, answer, found in judged(where, answers, seeds):
        name = getattr(answer, "__name__", str(answer))
        for row in found:
            if row.status != "pass" or "near the limit" in row.message:
                yield f"{name}, seed {seed}: {row.name}: {row.message}"


Found = Iterator[tuple[int, Answer, tuple[PropertyVerdict, ...]]]


def _plain(where: str, answers: list[Answer], seeds: range) -> Found:
    pool = InProcessPool(where)
    for seed in seeds:
        for pool.function in answers:
            yield seed, pool.function, judge(where, FOUND, pool=pool, seed=seed).properties


def _programs(where: str, answers: list[Answer], seeds: range) -> Found:
    """All answers with one seed, then with the next: what is right is computed once for each."""
    contract = load(where, hidden=True)
    contract = replace(contract, communication=None, memory=None, flops=None, errors=())
    truth = lru_cache(maxsize=len(contract.cases))(oracle.truth)
    with patch.object(program_judge, "truth", truth), patch.object(reading, "template", template):
        runners = []
        for answer in answers:
            pool = InProcessPool(where, contract)
            pool.function = answer
            evidence = collect(pool, worker_job(contract, FOUND, pool.limits))
            session = ReaderSession(pool, where, contract)
            first = ProgramJudge(contract, 0, session, evidence, Findings(contract))
            first.judge()
            yield 0, answer, first.findings.properties()
            runners.append((answer, first))
        for seed in seeds:
            for answer, first in runners:
                findings = Findings(contract)
                Runner(
                    contract, seed, first.reader, first.evidence, findings,
                    first.answer, first.reference,
                ).judge()  # fmt: skip
                yield seed, answer, findings.properties()
