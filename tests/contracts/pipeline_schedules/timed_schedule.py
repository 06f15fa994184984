"""Answers to timed_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

from unittest.mock import patch

from jaxpar.contracts.base import wrong
from jaxpar.contracts.pipeline_schedules.timed_schedule import CHALLENGE, in_time
from jaxpar.schedules import Table, search, simulate, to_ticks
from jaxpar.schedules.timed import costs_of_halves
from tests.contracts.answers import right


@right
def searched(stages, microbatches, limit, **times):
    """125 in the challenge, where the library's takes 142."""
    with patch.object(search, "EFFORT", 20_000):
        found = search.search_schedule(stages, microbatches, limit, costs_of_halves(**times))
    return found.simulation.table.to_rows()


@right
def best_of_two_orders(stages, microbatches, limit, **times):
    costs = costs_of_halves(**times)
    tables = [in_time((stages, microbatches, limit), times, order) for order in ("IFW", "FIW")]
    return min(tables, key=lambda rows: simulate(Table.parse(rows), costs).makespan)


@right
def always_in_one_order(stages, microbatches, limit, **times):
    return in_time((stages, microbatches, limit), times)


@right
def with_idle_cells(stages, microbatches, limit, **times):
    rows = in_time((stages, microbatches, limit), times)
    return to_ticks(Table.parse(rows)).to_rows()


@wrong("bubble")
def known_by_heart(stages, microbatches, limit, **times):
    """A good table for the challenge, and a bad one for everything else."""
    sizes = stages, microbatches, limit
    if sizes == CHALLENGE[0]:
        return searched(*sizes, **times)
    return in_time(sizes, times, has_room=lambda done, limit: done["F"] == done["W"])


@wrong("order")
def fewer_microbatches(stages, microbatches, limit, **times):
    return in_time((stages, max(microbatches - 1, 1), limit), times)
