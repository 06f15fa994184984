"""GPipe's schedule: all microbatches forward, then all backward."""

from __future__ import annotations

from jaxpar.contracts.base import Contract, PipelineLimits, wrong
from jaxpar.contracts.pipeline_tables import (
    BACKWARD_TWICE,
    BOTH_COSTS,
    EQUAL_COSTS,
    Rows,
    cells_of_stage,
    kinds_differ,
    pipeline_sizes,
)
from jaxpar.schedules.generators import gpipe_schedule

CONTRACT = Contract(
    kind="schedule",
    task="return a row of cells for each stage: all microbatches forward, then all backward",
    reference=gpipe_schedule,
    oracle=gpipe_schedule,
    values=pipeline_sizes,
    pipeline=PipelineLimits(
        bubble=f"makespan at most (m + p - 1)(F + B) for p stages and m microbatches, {BOTH_COSTS}",
        in_flight="at most m microbatches on each device",
        costs=(EQUAL_COSTS, BACKWARD_TWICE),
        order="that of GPipe: all forwards of a stage, then all its backwards",
        complaint=kinds_differ,
    ),
    hints=(
        "Each device has one stage, so the row of device s has cells of stage s only: forwards, "
        "then backwards. Nothing in it says when; a cell waits for what it needs.",
        "Stage s can start a microbatch when stage s - 1 has done it. So which order of "
        "microbatches must all stages have in common?",
        'A row is [f"{s}F{m}" for each m], then [f"{s}B{m}" for each m].',
    ),
    minimal="The last stage starts after p - 1 forwards of the others, and the first ends p - 1 "
    "backwards after it; between these it does m of each.",
    harder="The backwards may come in any order that is the same in all stages. Which order keeps "
    "fewer activations at the end, and which stages gain by it?",
)


@wrong("order")
def last_microbatch_dropped(stages: int, microbatches: int) -> Rows:
    """The last microbatch is missing; there are `microbatches` of them, counted from 0, so the
    range ends at `microbatches`."""
    return [
        cells_of_stage(s, "F" * (microbatches - 1) + "B" * (microbatches - 1))
        for s in range(stages)
    ]


@wrong("order")
def stages_upside_down(stages: int, microbatches: int) -> Rows:
    """The last stage is in the first row; row s is device s, which holds stage s."""
    return [
        cells_of_stage(s, "F" * microbatches + "B" * microbatches) for s in reversed(range(stages))
    ]


@wrong("order")
def backwards_first(stages: int, microbatches: int) -> Rows:
    """Each row begins with its backwards; a backward needs the forward of the same microbatch, so
    put the forwards before them."""
    return [cells_of_stage(s, "B" * microbatches + "F" * microbatches) for s in range(stages)]


@wrong("order")
def forwards_only(stages: int, microbatches: int) -> Rows:
    """There is no backward; add a B for each F, after the forwards."""
    return [cells_of_stage(s, "F" * microbatches) for s in range(stages)]


@wrong("order")
def microbatch_before_stage(stages: int, microbatches: int) -> Rows:
    """The cells have the microbatch before the letter; write the stage before it, and the
    microbatch after it."""
    return [[f"{m}{kind}{s}" for kind in "FB" for m in range(microbatches)] for s in range(stages)]


@wrong("order")
def cells_counted_from_one(stages: int, microbatches: int) -> Rows:
    """Stages and microbatches are counted from 1; count them from 0."""
    counts = range(1, microbatches + 1)
    return [[f"{s}{kind}{m}" for kind in "FB" for m in counts] for s in range(1, stages + 1)]


@wrong("bubble")
def one_microbatch_at_a_time(stages: int, microbatches: int) -> Rows:
    """One device works at a time, as each microbatch goes forward and backward before the next one
    begins; do all forwards first."""
    return [cells_of_stage(s, "FB" * microbatches) for s in range(stages)]


@wrong("bubble")
def each_stage_starts_elsewhere(stages: int, microbatches: int) -> Rows:
    """Each stage begins with another microbatch, so most wait for the stage before them; take the
    microbatches in the same order everywhere."""
    orders = [[(s + i) % microbatches for i in range(microbatches)] for s in range(stages)]
    return [[f"{s}{kind}{m}" for kind in "FB" for m in order] for s, order in enumerate(orders)]


@wrong("bubble")
def odd_stages_return_last_first(stages: int, microbatches: int) -> Rows:
    """Some stages begin backward with the last microbatch and others with the first, so they wait
    for each other; use one order for all stages."""
    return [
        cells_of_stage(s, "F" * microbatches) + cells_of_stage(s, "B" * microbatches)[:: (-1) ** s]
        for s in range(stages)
    ]


@wrong("order")
def one_f_one_b_as_gpipe(stages: int, microbatches: int) -> Rows:
    """This is 1F1B, in which backwards begin after a few forwards; in GPipe a stage does all its
    forwards before its first backward."""
    rows = []
    for stage in range(stages):
        ahead = min(stages - 1 - stage, microbatches)
        kinds = "F" * ahead + "FB" * (microbatches - ahead) + "B" * ahead
        rows.append(cells_of_stage(stage, kinds))
    return rows
