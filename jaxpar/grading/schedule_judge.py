"""Judges pipeline schedules: whether they can run, how long they take, and what they keep.

A table that costs no more than it may must also be in the order of the schedule that was asked for.

`judge` calls this for exercises of the kind `schedule`. The worker's evidence holds the tables as
plain data; they are simulated here, so that no reader is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, Mistake, PipelineLimits
from jaxpar.drawing.schedule import Timeline, Track
from jaxpar.grading.findings import Finding, Findings, unjudged
from jaxpar.grading.processes import ChildPool
from jaxpar.grading.repeated_calls import (
    RAISES,
    call_twice,
    in_words,
    matching_sentence,
    outcome,
    raised,
)
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Judgement, Measured
from jaxpar.schedules import Costs, Simulation, Table, check, simulate
from jaxpar.schedules.simulator import Number

CAN_RUN = "every table can run"
FORGETFUL = "depends on earlier calls: the same call gave two tables; keep no state between calls"
MOST_CELLS = 10_000
PICTURE_WIDTH = 76


@dataclass(frozen=True)
class SimulatedTable:
    """A table that can run, simulated with the costs of a contract."""

    table: Table
    simulations: tuple[Simulation, ...]

    @classmethod
    def of(cls, table: Table, limits: PipelineLimits, call: Call) -> SimulatedTable:
        """Simulates the table of a call with the costs of the contract."""
        return cls(table, tuple(simulate(table, costs) for costs in limits.costs_of(call)))

    @property
    def makespans(self) -> list[Number]:
        """The makespan with each of the costs."""
        return [simulation.makespan for simulation in self.simulations]

    @property
    def in_flight(self) -> list[int]:
        """The most activations that each device keeps at once."""
        return self.simulations[0].peak_in_flight


def judge_schedules(
    contract: Contract, submission: Submission, pool: ChildPool, seed: int
) -> Judgement:
    """Asks for tables of drawn sizes, and holds each against the reference's table."""
    assert contract.values is not None and contract.pipeline is not None
    calls = contract.values(np.random.default_rng(seed))
    expected = [outcome(contract.reference, call) for call in calls]
    outcomes = call_twice(contract, submission, pool, calls)
    if outcomes.ended is not None:
        return unjudged(contract, *outcomes.ended, outcomes.printed)
    findings = Findings(contract)
    costed: list[tuple[str, SimulatedTable, SimulatedTable]] = []  # call, answer's and reference's
    measured: Measured | None = None
    for call, right, got, again in zip(calls, expected, outcomes.got, outcomes.again, strict=True):
        try:
            table = _read(right, got, again)
        except ValueError as error:
            why = str(error).removeprefix("schedule: ")
            findings.add("order", Finding(False, f"{in_words(contract, call)}: {why}"))
        else:
            findings.add("order", Finding(True, CAN_RUN))
            if table is not None:
                model = SimulatedTable.of(Table.parse(right), contract.pipeline, call)
                answer = SimulatedTable.of(table, contract.pipeline, call)
                costed.append((in_words(contract, call), answer, model))
                most = _most_in_flight(contract.pipeline, call, model)
                _limit(findings, contract.pipeline, *costed[-1], most)
                if contract.challenge and call is calls[0]:
                    measured = _makespans(*costed[-1])
    if not findings.any_wrong():  # what costs too much is told of its costs
        for triple in costed:
            _hold_against_its_name(findings, contract.pipeline, *triple)
    properties = findings.properties()
    wrong = next((p.name for p in properties if p.status == "fail"), None)
    if wrong is None:
        return Judgement("pass", properties, measured=measured, printed=outcomes.printed)
    mistakes = [mistake for mistake in contract.mistakes if mistake.fails == wrong]
    diagnosis = matching_sentence(mistakes, calls, outcomes.got, expected, _same_order)
    if not diagnosis and wrong != "order":
        diagnosis = _named_by_cost(contract, mistakes, calls, [answer for _, answer, _ in costed])
    diagnosis = diagnosis or outcomes.meaning(expected)
    return Judgement("fail", properties, diagnosis, measured, outcomes.printed)


def _most_in_flight(limits: PipelineLimits, call: Call, model: SimulatedTable) -> list[int]:
    """Returns the most activations that each device may keep."""
    if limits.most_in_flight is None:
        return model.in_flight
    args, kwargs = call
    return [limits.most_in_flight(*args, **kwargs)] * model.table.devices


def _makespans(call: str, answer: SimulatedTable, model: SimulatedTable) -> Measured:
    """Returns the number of a challenge: the makespan with the contract's first costs."""
    mine, library = (round(one.makespans[0]) for one in (answer, model))
    return Measured("makespan", call, mine, library, challenge=True)


def _read(right: Any, got: Any, again: Any) -> Table | None:
    """Returns the table of an answer; None where the answer rightly raised ValueError.

    Raises:
        ValueError: the answer must return a table here, or another one, or must raise.
    """
    if got != again:
        raise ValueError(FORGETFUL)
    if right == RAISES:
        if got != RAISES:
            raise ValueError(f"{got if raised(got) else 'a result'}; it must raise ValueError")
        return None
    if raised(got):
        raise ValueError(f"{got}; it must return a table")
    return read_table(got, Table.parse(right))


def _limit(
    findings: Findings,
    limits: PipelineLimits,
    call: str,
    answer: SimulatedTable,
    model: SimulatedTable,
    most_in_flight: list[int],
) -> None:
    """Adds the findings about one table: its makespan, and the activations that it keeps."""
    findings.add("bubble", Finding(True, limits.bubble))
    for simulation, least in zip(answer.simulations, model.makespans, strict=True):
        if simulation.makespan > least:
            costs = costs_in_words(simulation.costs, simulation.table)
            picture = draw(call, simulation)
            message = f"{call} takes longer than it must with {costs}\n\n{picture}\n"
            took = f"makespan {simulation.makespan}"
            findings.add("bubble", Finding(False, message, f"makespan {least}", took))
    findings.add("in_flight", Finding(True, limits.in_flight))
    pairs = zip(answer.in_flight, most_in_flight, strict=True)
    over = [device for device, (kept, most) in enumerate(pairs) if kept > most]
    if over:
        picture = draw(call, answer.simulations[-1])
        message = f"{call}: device {over[0]} keeps more than it may\n\n{picture}\n"
        most, kept = (" ".join(map(str, one)) for one in (most_in_flight, answer.in_flight))
        findings.add("in_flight", Finding(False, message, f"at most {most}", kept))


def _hold_against_its_name(
    findings: Findings,
    limits: PipelineLimits,
    call: str,
    answer: SimulatedTable,
    model: SimulatedTable,
) -> None:
    """Adds a finding about one table if it is not in the order of the schedule asked for."""
    complaint = limits.complaint and limits.complaint(answer.table, model.table)
    if complaint:
        picture = draw(call, answer.simulations[-1])
        message = f"{call}: {complaint}; the order is {limits.order}\n\n{picture}\n"
        findings.add("order", Finding(False, message))


def _named_by_cost(
    contract: Contract,
    mistakes: list[Mistake],
    calls: list[Call],
    costed: list[SimulatedTable],
) -> str:
    """Returns the sentence of the mistake whose tables cost the same, or an empty text."""
    for mistake in mistakes:
        pairs = zip(costed, _costed(contract, mistake, calls), strict=False)
        if all(_bill(one) == _bill(other) for one, other in pairs):
            return mistake.sentence
    return ""


def _costed(
    contract: Contract, mistake: Mistake, calls: Iterable[Call]
) -> Iterator[SimulatedTable]:
    """Yields a mistake's tables with their costs, each only when it is asked for."""
    assert contract.pipeline is not None
    for call in calls:
        table = outcome(mistake.function, call)
        if table != RAISES:
            yield SimulatedTable.of(Table.parse(table), contract.pipeline, call)


def _bill(costed: SimulatedTable) -> tuple:
    return costed.makespans, costed.in_flight


def read_table(value: Any, model: Table) -> Table:
    """Returns the table in a result, if it is one for the sizes of `model` and can run.

    Raises:
        ValueError: the result is no table, its table can never run, or it has other sizes.
    """
    table = Table.parse(_rows(value, model.devices))
    check(table)
    for name in ("stages", "microbatches"):
        has, must = getattr(table, name), getattr(model, name)
        if has != must:
            raise ValueError(f"{name}: it has {has}, and must have {must}, counted from 0")
    for stage in range(model.stages):
        at, home = table.device_of(stage), model.device_of(stage)
        if at != home:
            raise ValueError(f"stage {stage} is in row {at + 1}; device {home} is row {home + 1}")
    return table


def _same_order(got: Any, other: Any) -> bool:
    return busy_cells(got) == busy_cells(other)


def busy_cells(value: Any) -> Any:
    """Returns rows without their idle cells, and any other data as it is."""
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        return value
    return [[cell for cell in row if cell] for row in value]


def draw(name: str, simulation: Simulation) -> str:
    """Returns a picture of when each device does what, as lines of text without colour."""
    track = Track(name, simulation)
    return Timeline((track,)).to_text(PICTURE_WIDTH).partition(f"\n{track.heading}")[0]


def costs_in_words(costs: Costs, table: Table) -> str:
    """Returns the costs of the kinds of cell in a table as text, such as `F=1 B=2`.

    That of a transfer (P) is among them if it takes time.
    """
    kinds = sorted({action.kind for action in table.places}, key="FBIW".index)
    kinds += ["P"] * (costs.P > 0)
    return " ".join(f"{kind}={getattr(costs, kind)}" for kind in kinds)


def _rows(value: Any, devices: int) -> list[list]:
    """Returns the result if it is a list of rows of a readable size; cells are not checked."""
    if not isinstance(value, list):
        shown = value if isinstance(value, str) else repr(value)
        raise ValueError(f"the result is {shown[:80]}; return a list of rows, one for each device")
    for device, row in enumerate(value):
        if not isinstance(row, list):
            raise ValueError(
                f"row {device + 1} is {repr(row)[:40]}; a row is a list of cells such as '0F0'"
            )
    if len(value) != devices:
        raise ValueError(f"it has {len(value)} rows, and must have {devices}, one for each device")
    cells = sum(map(len, value))
    if cells > MOST_CELLS:
        raise ValueError(
            f"it has {cells:,} cells, and at most {MOST_CELLS:,} are read; leave idle cells out"
        )
    return value
