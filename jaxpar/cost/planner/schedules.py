"""A plan under each named pipeline schedule: its step and its memory, by simulation.

The formulas of `step_terms` know 1F1B and its interleaved form. Here the work of a stage is cut
into forward passes, gradients of inputs and gradients of weights, and the simulator runs each
schedule with these. What stages send each other is part of their work, as in the formulas.
"""

from dataclasses import dataclass

from jaxpar.cost.planner.plan import Plan
from jaxpar.cost.step import BACKWARD_BYTES
from jaxpar.schedules import Costs, Table, make_table, peak_in_flight, simulate
from jaxpar.schedules.generators import LOOPED, NAMES

MOST_CELLS = 50_000
_NAMES = ("products", "attention", "memory traffic")
_WORK = (*_NAMES, *(f"{name} again" for name in _NAMES))


@dataclass(frozen=True)
class Scheduled:
    """A plan under one schedule.

    Attributes:
        name: the schedule, as in "interleaved, 4 chunks".
        step_seconds: what a step takes.
        bubble: the fraction of the pipeline's time in which a device idles, on average.
        in_flight: the most microbatches whose activations a device keeps.
        memory_bytes: on the fullest device.
        problem: why the schedule cannot run; then nothing else is given.
    """

    name: str
    step_seconds: float = 0.0
    bubble: float = 0.0
    in_flight: float = 0.0
    memory_bytes: float = 0.0
    problem: str = ""


def under_schedules(plan: Plan) -> list[Scheduled]:
    """The plan under every schedule, the fastest first, and last those that cannot run.

    Raises:
        ValueError: the plan has no pipeline, or one too large to draw up.
    """
    if plan.layout.pp == 1:
        raise ValueError(
            f"plan: --schedules with {plan.layout.mesh}: it has no pipeline; fix one, as "
            "--mesh pp=4"
        )
    try:
        own = _table(plan, "interleaved" if plan.layout.chunks > 1 else "1f1b")
    except ValueError as error:
        raise ValueError(f"plan: --schedules with {plan.layout.mesh}: {error}") from None
    in_flight = max(peak_in_flight(own)) / own.chunks
    found = [_scheduled(plan, name, in_flight) for name in NAMES if name != "naive"]
    return sorted(found, key=lambda one: (bool(one.problem), one.step_seconds))


def _scheduled(plan: Plan, name: str, by_formulas: float) -> Scheduled:
    """The plan under one schedule; the formulas have so many microbatches in flight."""
    try:
        table = _table(plan, name)
    except ValueError as error:
        return Scheduled(name, problem=str(error))
    chunks = table.chunks
    bubble = next(term for term in plan.time if term.name == "bubble")
    stage = float(bubble.numbers["stage_seconds"])
    simulation = simulate(table, _costs(plan, stage / (plan.microbatches * chunks)))
    rest = plan.step_seconds - float(bubble.value) - stage
    kept = sum(float(term.value) for term in plan.memory if term.name == "activations")
    in_flight = max(simulation.peak_in_flight) / chunks
    return Scheduled(
        name if name not in LOOPED else f"{name}, {chunks} chunks",
        step_seconds=rest + simulation.makespan,
        bubble=simulation.bubble,
        in_flight=in_flight,
        memory_bytes=plan.memory_bytes + (in_flight / by_formulas - 1) * kept,
    )


def _table(plan: Plan, name: str) -> Table:
    chunks = max(plan.layout.chunks, 2) if name in LOOPED else 1
    stages, microbatches = plan.layout.pp, plan.microbatches
    if stages * microbatches * chunks > MOST_CELLS:
        raise ValueError(
            f"{stages * microbatches * chunks:,} forward passes are too many to draw up"
        )
    table = make_table(name, stages, microbatches, chunks if name in LOOPED else None)
    # The embedding and the head may be stages of their own, as in Llama 3 405B.
    if plan.job.architecture.layers + 2 < stages * table.chunks:
        raise ValueError(f"the model has too few layers for {stages * table.chunks} stages")
    return table


def _costs(plan: Plan, seconds: float) -> Costs:
    """The times of the cells of a chunk whose passes take so many seconds in all."""
    work = {term.name: float(term.value) for term in plan.time if term.name in _WORK}
    whole = sum(work.values())
    passes = 3 if plan.job.each.trained == 1 else 2
    parts = {"products": 1 / passes, "attention": 1 / 3, "memory traffic": 1 / (1 + BACKWARD_BYTES)}
    forward = sum(part * work[name] for name, part in parts.items()) / whole
    of_weights = (passes - 2) / passes * work["products"] / whole
    backward = 1 - forward
    return Costs(
        F=forward * seconds,
        B=backward * seconds,
        I=(backward - of_weights) * seconds,
        W=of_weights * seconds,
    )
