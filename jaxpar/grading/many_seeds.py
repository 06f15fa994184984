"""Right answers judged with many seeds: exported and compiled once, then run with each seed.

Whoever writes an exercise finds out with it whether rounding makes some right answers fail, or
nearly fail, with some inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from jaxpar.contracts.base import load, with_drawn
from jaxpar.grading.evidence import collect_evidence
from jaxpar.grading.findings import NEAR, Findings
from jaxpar.grading.in_process import ELSEWHERE, SEED, Answer, InProcessPool
from jaxpar.grading.judge import judge
from jaxpar.grading.oracle import Truth, truth
from jaxpar.grading.program_judge import ProgramJudge
from jaxpar.grading.reader_client import ReaderClient
from jaxpar.grading.verdict import PropertyVerdict

Judged = Iterator[tuple[int, Answer, tuple[PropertyVerdict, ...]]]


def failures(where: str, answers: Sequence[Answer], seeds: Iterable[int]) -> Iterator[str]:
    """Yields a line for each property that right answers fail, or nearly fail, with a seed."""
    kind = load(where).kind
    judged = _plain if kind in ("value", "schedule") else _programs
    for seed, answer, properties in judged(where, answers, seeds):
        name = getattr(answer, "__name__", str(answer))
        for row in properties:
            if row.status != "pass" or NEAR in row.message:
                yield f"{name}, seed {seed}: {row.name}: {row.message}"


def _plain(where: str, answers: Sequence[Answer], seeds: Iterable[int]) -> Judged:
    pool = InProcessPool(where)
    for seed in seeds:
        for answer in answers:
            pool.function = answer
            yield seed, answer, judge(where, ELSEWHERE, pool=pool, seed=seed).properties


def _programs(where: str, answers: Sequence[Answer], seeds: Iterable[int]) -> Judged:
    """Judges all answers with one seed after the other; right results are computed once a seed."""
    contract = with_drawn(where, SEED)
    not_judged: dict[str, Any] = dict.fromkeys(("communication", "memory", "flops", "challenge"))
    contract = replace(contract, errors=(), **not_judged)
    kept_truth = lru_cache(maxsize=len(contract.cases))(truth)
    judges: list[ProgramJudge] = []
    for seed in (0, *seeds):
        for number, answer in enumerate(answers):
            findings = Findings(contract)

            def truth_of(index: int, seed: int = seed) -> Truth:
                return kept_truth(contract, index, seed)

            if number == len(judges):
                pool = InProcessPool(where, contract)
                pool.function = answer
                evidence = collect_evidence(pool, contract, ELSEWHERE)
                reader = ReaderClient(pool, where, contract)
                judges.append(ProgramJudge(contract, reader, evidence, findings, truth_of))
            else:  # its programs were read with the first seed
                judges[number] = replace(
                    judges[number],
                    findings=findings,
                    truth_of=truth_of,
                    results={},
                    truths={},
                    judged=[],
                )
            judges[number].judge()
            yield seed, answer, findings.properties()
