"""Answers to zero_bubble_h1_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

import re

from jaxpar.contracts.base import wrong
from jaxpar.contracts.pipeline_schedules.zero_bubble_h1_schedule import (
    kinds_of_row,
    rows_with_late_weights,
)
from jaxpar.contracts.pipeline_tables import cells_of_stage
from tests.contracts.answers import right


@right
def oldest_weights_first(stages, microbatches):
    return rows_with_late_weights(microbatches, list(range(stages)))


@right
def newest_weights_first(stages, microbatches):
    rows = []
    for row in oldest_weights_first(stages, microbatches):
        waiting, cells = [], []
        for cell in row:
            if "I" in cell:
                waiting.append(cell.replace("I", "W"))
            cells.append(waiting.pop() if "W" in cell else cell)
        rows.append(cells)
    return rows


@right
def whole_on_the_first(stages, microbatches):
    """The first device has no one to send to: its I and W may be one."""
    rows = oldest_weights_first(stages, microbatches)
    rows[0] = [cell.replace("I", "B") for cell in rows[0] if "W" not in cell]
    return rows


@wrong("order")
def one_weight_short(stages, microbatches):
    return [row[:-1] for row in oldest_weights_first(stages, microbatches)]


@wrong("order")
def weights_of_the_next(stages, microbatches):
    """W of a microbatch whose I is still to come."""
    return [
        [re.sub(r"W(\d+)", lambda m: f"W{microbatches - 1 - int(m[1])}", cell) for cell in row]
        for row in oldest_weights_first(stages, microbatches)
    ]


@wrong("bubble")
def gpipe_in_two(stages, microbatches):
    return [[f"{s}{kind}{m}" for kind in "FIW" for m in range(microbatches)] for s in range(stages)]


@wrong("bubble")
def by_half_of_the_rank(stages, microbatches):
    return rows_with_late_weights(microbatches, [rank // 2 for rank in range(stages)])


@wrong("bubble")
def whole_on_the_last(stages, microbatches):
    rows = oldest_weights_first(stages, microbatches)
    rows[-1] = [cell.replace("I", "B") for cell in rows[-1] if "W" not in cell]
    return rows


@wrong("bubble")
def weights_when_idle(stages, microbatches):
    """Tick by tick: I if it can be, else F if no more than p are kept, else W."""
    rows = [[] for _ in range(stages)]
    counts = [dict.fromkeys("FIW", 0) for _ in range(stages)]
    done = {}
    tick = 0
    while any(count["W"] < microbatches for count in counts):
        for s, count in enumerate(counts):
            for kind in "IFW":
                m = count[kind]
                before = {
                    "F": done.get((s - 1, "F", m), -1 if s == 0 else tick),
                    "I": max(
                        done.get((s, "F", m), tick),
                        done.get((s + 1, "I", m), -1 if s == stages - 1 else tick),
                    ),
                    "W": done.get((s, "I", m), tick),
                }[kind]
                room = count["F"] - count["W"] < stages and count["F"] - count["I"] < stages - s
                if m < microbatches and before < tick and (kind != "F" or room):
                    rows[s].append(f"{s}{kind}{m}")
                    done[s, kind, m] = tick
                    count[kind] += 1
                    break
        tick += 1
    return rows


@wrong("in_flight")
def one_more_on_the_first(stages, microbatches):
    """It does one forward more before its first backward, which costs no time."""
    rows = oldest_weights_first(stages, microbatches)
    rows[0] = cells_of_stage(0, kinds_of_row(microbatches, ahead=stages, late=0))
    return rows
