"""A schedule that follows from times alone: what can start first comes first."""

from __future__ import annotations

from jaxpar.schedules.partial import Problem
from jaxpar.schedules.simulator import Costs


def costs_of_halves(*, f: int, i: int, w: int, transfer: int) -> Costs:
    """The times of the cells, where a whole backward takes as long as its halves."""
    return Costs(F=f, B=i + w, I=i, W=w, P=transfer)


def timed_schedule(
    stages: int, microbatches: int, limit: int, *, f: int, i: int, w: int, transfer: int
) -> list[list[str]]:
    """A schedule within a limit, made for given times: what can start first comes first.

    There is a row for each device, and a device holds one stage. Cells are as in 1F1B's table, but
    each backward is in two halves: "2I0" is the gradient with respect to the input of stage 2, and
    "2W0", at any time after it, is that with respect to its weights. A microbatch is in flight on a
    device from its F to its W, and no device may have more than `limit` in flight.

    F, I and W take `f`, `i` and `w`, and a B, both halves in one, takes `i + w`. What a stage sends
    to the next or to the previous one arrives `transfer` after the end of the cell, and keeps no
    device busy. A device that is free begins the I that has arrived, or else the F that has arrived
    if there is room for it, or else a W; if there is none of them, it waits.

    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 3, which has better rules

    Raises:
        ValueError: stages, microbatches or the limit are less than 1.
    """
    for name, size in (("stages", stages), ("microbatches", microbatches), ("limit", limit)):
        if size < 1:
            raise ValueError(
                f"timed_schedule: {name} is {size}; it must be 1 or more; use for example 4"
            )
    costs = costs_of_halves(f=f, i=i, w=w, transfer=transfer)
    problem = Problem(stages, microbatches, limit, costs, span=False)
    partial = problem.start()
    while ready := [choice for some in partial.ready for choice in some]:
        first = min(ready, key=lambda choice: (choice.start, "IFW".index(choice.kind)))
        partial = problem.after(partial, first)
    return partial.to_table().to_rows()
