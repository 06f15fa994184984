"""Answers to gpipe_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import wrong
from jaxpar.schedules.generators import gpipe_schedule, one_f_one_b_schedule
from tests.contracts.answers import right
from tests.contracts.pipeline_tables import back_in_reverse


@wrong("order")
def as_one_f_one_b(stages, microbatches):
    return one_f_one_b_schedule(stages, microbatches)


@right
def last_microbatch_back_first(stages, microbatches):
    return back_in_reverse(stages, microbatches)


@right
def as_an_array(stages, microbatches):
    return np.array(gpipe_schedule(stages, microbatches))


@right
def backward_in_two(stages, microbatches):
    return [
        [f"{s}F{m}" for m in range(microbatches)]
        + [f"{s}{kind}{m}" for m in range(microbatches) for kind in "IW"]
        for s in range(stages)
    ]


@wrong("order")
def triples(stages, microbatches):
    return [[(s, "F", m) for m in range(microbatches)] for s in range(stages)]


@wrong("order")
def small_letters(stages, microbatches):
    return [[cell.lower() for cell in row] for row in gpipe_schedule(stages, microbatches)]


@wrong("order")
def a_generator(stages, microbatches):
    yield from gpipe_schedule(stages, microbatches)


@wrong("order")
def rows_of_generators(stages, microbatches):
    return [(cell for cell in row) for row in gpipe_schedule(stages, microbatches)]


@wrong("order")
def ticks_as_rows(stages, microbatches):
    return [list(column) for column in zip(*gpipe_schedule(stages, microbatches), strict=True)]


@wrong("order")
def two_chunks_each(stages, microbatches):
    """Half as much in each cell would make the bubble shorter."""
    order = [(c, m) for c in range(2) for m in range(microbatches)]
    return [
        [f"{c * stages + s}F{m}" for c, m in order]
        + [f"{(1 - c) * stages + s}B{m}" for c, m in order]
        for s in range(stages)
    ]


@wrong("order")
def fewer_larger_microbatches(stages, microbatches):
    return gpipe_schedule(stages, max(microbatches // 2, 1))


@wrong("order")
def deeply_nested(stages, microbatches):
    value = "0F0"
    for _ in range(20):
        value = [value]
    return [[value] for _ in range(stages)]


@wrong("order")
def too_deeply_nested(stages, microbatches):
    value = "0F0"
    for _ in range(700):
        value = [value]
    return value


@wrong("bubble")
def backward_one_ahead(stages, microbatches):
    """The first device goes backward in another order than the rest."""
    rows = gpipe_schedule(stages, microbatches)
    rows[0] = rows[0][:microbatches] + rows[0][microbatches + 1 :] + [rows[0][microbatches]]
    return rows


@right
def weights_at_the_end(stages, microbatches):
    """The gradients of the weights follow all those of the inputs."""
    return [[f"{s}{kind}{m}" for kind in "FIW" for m in range(microbatches)] for s in range(stages)]


@right
def evens_first(stages, microbatches):
    """The microbatches in another order, which is the same in all stages."""
    order = [*range(0, microbatches, 2), *range(1, microbatches, 2)]
    return [[f"{s}{kind}{m}" for kind in "FB" for m in order] for s in range(stages)]


@wrong("order")
def one_f_one_b_if_many(stages, microbatches):
    """Another schedule from so many microbatches on."""
    name = one_f_one_b_schedule if microbatches > 100 else gpipe_schedule
    return name(stages, microbatches)


@wrong("order")
def one_f_one_b_on_the_last(stages, microbatches):
    """The last stage has each gradient at once."""
    rows = gpipe_schedule(stages, microbatches)
    rows[-1] = one_f_one_b_schedule(stages, microbatches)[-1]
    return rows


@wrong("order")
def last_forward_late(stages, microbatches):
    """The first stage does its first backward before its last forward, where that costs nothing."""
    rows = one_f_one_b_schedule(stages, microbatches)
    return [row if s == 0 else sorted(row, key=lambda c: "B" in c) for s, row in enumerate(rows)]


@wrong("order")
def of_two_digits_at_most(stages, microbatches):
    return gpipe_schedule(stages, min(microbatches, 100))


@wrong("order")
def sixteen_stages_at_most(stages, microbatches):
    return gpipe_schedule(min(stages, 16), microbatches)


@wrong("bubble")
def four_at_a_time(stages, microbatches):
    """Four microbatches forward, then backward, and so on."""
    groups = [range(k, min(k + 4, microbatches)) for k in range(0, microbatches, 4)]
    return [
        [f"{s}{kind}{m}" for group in groups for kind in "FB" for m in group] for s in range(stages)
    ]
