"""Answers to zero_bubble_h1_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

import re

from jaxpar.contracts.base import wrong
from jaxpar.contracts.pipeline_schedules.zero_bubble_h1_schedule import (
    kinds_of_row,
    rows_with_late_weights,
)
from jaxpar.contracts.pipeline_tables import cells_of_stage
from jaxpar.schedules import Table, to_ticks
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


@right
def with_idle_cells(stages, microbatches):
    return to_ticks(Table.parse(oldest_weights_first(stages, microbatches))).to_rows()


@right
def microbatches_backwards(stages, microbatches):
    """The last microbatch enters first."""
    last = microbatches - 1
    return [
        [re.sub(r"\d+$", lambda m: str(last - int(m[0])), cell) for cell in row]
        for row in oldest_weights_first(stages, microbatches)
    ]


@wrong("bubble")
def plain_up_to_twice(stages, microbatches):
    """No W waits, where the microbatches do not fill the pipeline."""
    full = microbatches < stages or microbatches > 2 * stages - 2
    return rows_with_late_weights(microbatches, [rank * full for rank in range(stages)])


@wrong("bubble")
def gpipe_in_two_if_few(stages, microbatches):
    """All forwards first, where no more than p are in flight."""
    if microbatches > stages:
        return oldest_weights_first(stages, microbatches)
    return gpipe_in_two(stages, microbatches)


@wrong("bubble")
def weights_wait_if_even(stages, microbatches):
    """Microbatches two at a time; with an odd number, no W waits."""
    even = microbatches % 2 == 0
    return rows_with_late_weights(microbatches, [rank * even for rank in range(stages)])


@wrong("order")
def sixteen_stages_at_most(stages, microbatches):
    return oldest_weights_first(min(stages, 16), microbatches)


@wrong("bubble")
def eight_wait_at_most(stages, microbatches):
    return rows_with_late_weights(microbatches, [min(rank, 8) for rank in range(stages)])


@wrong("bubble")
def whole_past_a_hundred(stages, microbatches):
    rows = oldest_weights_first(stages, microbatches)
    if microbatches <= 100:
        return rows
    return [[cell.replace("I", "B") for cell in row if "W" not in cell] for row in rows]
