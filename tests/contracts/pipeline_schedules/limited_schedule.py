"""Answers to limited_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

from jaxpar.contracts.base import wrong
from jaxpar.contracts.pipeline_schedules.limited_schedule import limited_rows
from jaxpar.schedules import Table, to_ticks
from jaxpar.schedules.generators import zero_bubble_h1_schedule
from tests.contracts.answers import right


def tick_by_tick(stages, microbatches, limit, order="IFW"):
    """Each device does the first kind of `order` that can run; a stage keeps p - rank until I."""
    limited_rows(stages, microbatches, limit)
    rows = [[] for _ in range(stages)]
    counts = [dict.fromkeys("FIW", 0) for _ in range(stages)]
    done = {}
    tick = 0
    while any(count["W"] < microbatches for count in counts):
        for s, count in enumerate(counts):
            needs = {
                "F": [(s - 1, "F")] * (s > 0),
                "I": [(s, "F")] + [(s + 1, "I")] * (s < stages - 1),
                "W": [(s, "I")],
            }
            room = count["F"] - count["W"] < limit and count["F"] - count["I"] < stages - s
            for kind in order:
                m = count[kind]
                ready = all(done.get((*need, m), tick) < tick for need in needs[kind])
                if m < microbatches and ready and (kind != "F" or room):
                    rows[s].append(f"{s}{kind}{m}")
                    done[s, kind, m] = tick
                    count[kind] += 1
                    break
        tick += 1
    return rows


@right
def best_of_several_orders(stages, microbatches, limit):
    """31 in the challenge, where the library's takes 48."""
    tables = [tick_by_tick(stages, microbatches, limit, order) for order in ("IFW", "IWF")]
    return min(tables, key=lambda rows: max(map(len, to_ticks(Table.parse(rows)).to_rows())))


@right
def halves_in_turn(stages, microbatches, limit):
    return limited_rows(stages, microbatches, limit, "FIW", "IW")


@right
def with_idle_cells(stages, microbatches, limit):
    return to_ticks(Table.parse(halves_in_turn(stages, microbatches, limit))).to_rows()


@wrong("bubble")
def known_by_heart(stages, microbatches, limit):
    """A good table for the challenge, and a bad one for everything else."""
    if (stages, microbatches, limit) == (4, 8, 3):
        return best_of_several_orders(stages, microbatches, limit)
    limited_rows(stages, microbatches, limit)
    return limited_rows(stages, microbatches, 1)


@wrong("in_flight")
def zero_bubble_whatever_the_limit(stages, microbatches, limit):
    limited_rows(stages, microbatches, limit)
    return zero_bubble_h1_schedule(stages, microbatches)


@wrong("order")
def fewer_microbatches(stages, microbatches, limit):
    """It is shorter, because it leaves the last microbatch out."""
    return limited_rows(stages, max(microbatches - 1, 1), limit)


@wrong("order")
def one_device_does_all(stages, microbatches, limit):
    limited_rows(stages, microbatches, limit)
    return [[f"{s}{k}{m}" for m in range(microbatches) for k in "FB" for s in range(stages)]]


@wrong("order")
def backward_before_its_time(stages, microbatches, limit):
    limited_rows(stages, microbatches, limit)
    return [[f"{s}{k}{m}" for m in range(microbatches) for k in "BF"] for s in range(stages)]


@wrong("order")
def cells_of_no_cost(stages, microbatches, limit):
    """A kind of cell that does not exist, which would take no time."""
    rows = halves_in_turn(stages, microbatches, limit)
    return [[cell.replace("W", "Z") for cell in row] for row in rows]


@wrong("bubble")
def in_groups_of_limit(stages, microbatches, limit):
    """GPipe with `limit` microbatches, again and again."""
    limited_rows(stages, microbatches, limit)
    return [
        [
            f"{s}{kind}{m}"
            for first in range(0, microbatches, limit)
            for kind in "FB"
            for m in range(first, min(first + limit, microbatches))
        ]
        for s in range(stages)
    ]
