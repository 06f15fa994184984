"""Judges pipeline schedules: whether they can run, how long they take, and what they keep."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxpar.contracts.base import Contract, PipelineLimits
from jaxpar.grading import schedules
from jaxpar.grading.calls import RAISES, Call, ask, in_words, outcome, raised
from jaxpar.grading.findings import Finding, Findings, unjudged
from jaxpar.grading.processes import Pool
from jaxpar.grading.schedules import Costed
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Judgement
from jaxpar.schedules import Table

CAN_RUN = "every table can run"
FORGETFUL = "depends on earlier calls: the same call gave two tables; keep no state between calls"


def judge_schedules(contract: Contract, submission: Submission, pool: Pool, seed: int) -> Judgement:
    """Asks for tables of drawn sizes, and simulates each; its limits are the reference's costs."""
    assert contract.values is not None and contract.pipeline is not None
    calls = contract.values(np.random.default_rng(seed))
    expected = [outcome(contract.reference, call) for call in calls]
    replies = ask(contract, submission, pool, calls)
    if replies.ended is not None:
        return unjudged(contract, *replies.ended, replies.printed)
    findings = Findings(contract)
    costed = []
    for call, right, got, again in zip(calls, expected, replies.got, replies.again, strict=True):
        try:
            table = _read(right, got, again)
        except ValueError as error:
            why = str(error).removeprefix("schedule: ")
            findings.add("order", Finding(False, f"{in_words(contract, call)}: {why}"))
        else:
            findings.add("order", Finding(True, CAN_RUN))
            if table is not None:
                (model,) = _costed(contract, [right])
                costed.append(Costed.of(table, contract.pipeline))
                _limit(findings, contract.pipeline, in_words(contract, call), costed[-1], model)
    properties = findings.properties()
    wrong = next((p.name for p in properties if p.status == "fail"), None)
    if wrong is None:
        return Judgement("pass", properties, printed=replies.printed)
    if wrong == "order":
        diagnosis = _named_by_order(contract, calls, replies.got, expected)
    else:
        diagnosis = _named_by_cost(contract, wrong, calls, costed)
    diagnosis = diagnosis or replies.meaning(expected)
    return Judgement("fail", properties, diagnosis, printed=replies.printed)


def _read(right: Any, got: Any, again: Any) -> Table | None:
    """The table that an answer returned; None where it rightly returned none.

    Raises:
        ValueError: it must return one, or another.
    """
    if got != again:
        raise ValueError(FORGETFUL)
    if right == RAISES:
        if got != RAISES:
            raise ValueError(f"{got if raised(got) else 'a result'}; it must raise ValueError")
        return None
    if raised(got):
        raise ValueError(f"{got}; it must return a table")
    return schedules.read(got, Table.parse(right))


def _limit(
    findings: Findings, limits: PipelineLimits, call: str, answer: Costed, model: Costed
) -> None:
    """Files what is found about one table's costs."""
    findings.add("bubble", Finding(True, limits.bubble))
    for simulation, least in zip(answer.simulations, model.makespans, strict=True):
        if simulation.makespan > least:
            costs = schedules.in_words(simulation.costs, simulation.table)
            picture = schedules.draw(call, simulation)
            message = f"{call} takes longer than it must with {costs}\n\n{picture}\n"
            took = f"makespan {simulation.makespan}"
            findings.add("bubble", Finding(False, message, f"makespan {least}", took))
    findings.add("in_flight", Finding(True, limits.in_flight))
    pairs = zip(answer.in_flight, model.in_flight, strict=True)
    over = [device for device, (kept, most) in enumerate(pairs) if kept > most]
    if over:
        picture = schedules.draw(call, answer.simulations[-1])
        message = f"{call}: device {over[0]} keeps more than it may\n\n{picture}\n"
        most, kept = (" ".join(map(str, one.in_flight)) for one in (model, answer))
        findings.add("in_flight", Finding(False, message, f"at most {most}", kept))


def _named_by_order(
    contract: Contract, calls: list[Call], got: list[Any], expected: list[Any]
) -> str:
    """The sentence of the mistake with the same tables.

    If none has them all, one with the same where there is a table to return: what must be refused
    may be a mistake of its own.
    """
    answered = [i for i, right in enumerate(expected) if right != RAISES]
    actions = [schedules.actions(table) for table in got]
    if all(actions[i] == schedules.actions(expected[i]) for i in answered):
        answered = []
    mistakes = [m for m in contract.mistakes if m.fails == "order"]
    for some in filter(None, (list(range(len(calls))), answered)):
        for mistake in mistakes:
            if all(actions[i] == schedules.actions(outcome(mistake.function, calls[i]))
                   for i in some):  # fmt: skip
                return mistake.sentence
    return ""


def _named_by_cost(contract: Contract, wrong: str, calls: list[Call], costed: list[Costed]) -> str:
    """The sentence of the mistake with tables that cost the same."""
    for mistake in contract.mistakes:
        if mistake.fails == wrong:
            tables = [outcome(mistake.function, call) for call in calls]
            if _bills(costed) == _bills(_costed(contract, tables)):
                return mistake.sentence
    return ""


def _costed(contract: Contract, tables: list[Any]) -> list[Costed]:
    assert contract.pipeline is not None
    return [Costed.of(Table.parse(t), contract.pipeline) for t in tables if t != RAISES]


def _bills(costed: list[Costed]) -> list[tuple]:
    return [(one.makespans, one.in_flight) for one in costed]
