"""Answers to interleaved_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

import re

from jaxpar.contracts.base import wrong
from jaxpar.contracts.pipeline_schedules.interleaved_schedule import (
    interleaved_rows,
    refuse_one_chunk,
    warm_up,
)
from jaxpar.schedules.generators import interleaved_schedule
from tests.contracts.answers import right
from tests.contracts.pipeline_tables import in_two


@right
def with_fewer_in_flight(stages, microbatches, chunks):
    """Where transfers take no time, half as many forwards first are enough."""
    refuse_one_chunk(chunks)

    def ahead(rank):
        return (stages - rank - 1) + (chunks - 1) * stages

    return interleaved_rows(stages, microbatches, chunks, ahead=ahead)


@right
def backward_then_forward(stages, microbatches, chunks):
    """One forward more at first, then pairs that begin with the backward."""
    rows = []
    for row in interleaved_schedule(stages, microbatches, chunks):
        first = next(i for i, cell in enumerate(row) if "B" in cell)
        forward = [cell for cell in row[first:] if "F" in cell]
        backward = [cell for cell in row if "B" in cell]
        pairs = [c for pair in zip(backward, forward, strict=False) for c in pair]
        rows.append(row[:first] + pairs + backward[len(forward) :])
    return rows


@right
def backward_in_two(stages, microbatches, chunks):
    rows = interleaved_schedule(stages, microbatches, chunks)
    return [in_two(row) for row in rows]


@right
def rounds_in_reverse(stages, microbatches, chunks):
    rows = interleaved_schedule(stages, microbatches, chunks)
    return [
        [re.sub(r"\d+$", lambda m: str(microbatches - 1 - int(m[0])), cell) for cell in row]
        for row in rows
    ]


@right
def idle_between(stages, microbatches, chunks):
    rows = interleaved_schedule(stages, microbatches, chunks)
    return [[x for cell in row for x in ("", cell)] for row in rows]


@wrong("order")
def takes_any_number(stages, microbatches, chunks):
    if microbatches % stages:
        return interleaved_schedule(stages, microbatches + -microbatches % stages, chunks)
    return interleaved_schedule(stages, microbatches, chunks)


@wrong("order")
def asserts_a_multiple(stages, microbatches, chunks):
    assert microbatches % stages == 0
    return interleaved_schedule(stages, microbatches, chunks)


@wrong("order")
def in_words(stages, microbatches, chunks):
    if microbatches % stages:
        return "raises ValueError"
    return interleaved_schedule(stages, microbatches, chunks)


@wrong("order")
def takes_one_chunk(stages, microbatches, chunks):
    if chunks == 1:
        return interleaved_rows(stages, microbatches, 1, ahead=lambda rank: stages - 1 - rank)
    return interleaved_schedule(stages, microbatches, chunks)


@wrong("order")
def always_refuses(stages, microbatches, chunks):
    raise ValueError("no multiple")


@wrong("order")
def in_a_v(stages, microbatches, chunks):
    def stage(rank, chunk):
        return chunk * stages + (stages - 1 - rank if chunk % 2 else rank)

    return interleaved_rows(stages, microbatches, chunks, stage=stage)


@wrong("order")
def more_chunks_than_asked(stages, microbatches, chunks):
    return interleaved_schedule(stages, microbatches, chunks + 1)


@wrong("in_flight")
def first_device_ahead(stages, microbatches, chunks):
    refuse_one_chunk(chunks)

    def ahead(rank):
        return warm_up(stages, chunks, rank) + (rank == 0)

    return interleaved_rows(stages, microbatches, chunks, ahead=ahead)


@right
def with_one_warm_up_for_all(stages, microbatches, chunks):
    """As many forwards first on the last device as it may, and one fewer on none."""
    refuse_one_chunk(chunks)

    def ahead(rank):
        return 2 * (stages - rank - 1) + (chunks - 1) * stages

    return tuple(tuple(row) for row in interleaved_rows(stages, microbatches, chunks, ahead=ahead))


@right
def weights_right_after(stages, microbatches, chunks):
    """I and W on the devices of even rank, B on the others."""
    rows = interleaved_schedule(stages, microbatches, chunks)
    return [row if rank % 2 else in_two(row) for rank, row in enumerate(rows)]


@wrong("order")
def nine_devices_at_most(stages, microbatches, chunks):
    return interleaved_schedule(min(stages, 9), microbatches, chunks)


@wrong("order")
def four_chunks_at_most(stages, microbatches, chunks):
    return interleaved_schedule(stages, microbatches, min(chunks, 4))


@wrong("order")
def sixteen_microbatches_at_most(stages, microbatches, chunks):
    if microbatches % stages:
        raise ValueError("no multiple")
    return interleaved_schedule(stages, min(microbatches, 16 * stages), chunks)


@wrong("order")
def refuses_by_the_chunks(stages, microbatches, chunks):
    """Fewer microbatches than devices are taken."""
    if microbatches % stages and microbatches > stages:
        raise ValueError("no multiple")
    refuse_one_chunk(chunks)
    return interleaved_schedule(stages, stages, chunks)


@wrong("in_flight")
def rounds_twice_as_long(stages, microbatches, chunks):
    """2p microbatches through one chunk, then through the next, where that many are left."""
    refuse_one_chunk(chunks)
    size = stages if microbatches % (2 * stages) else 2 * stages
    starts = range(0, microbatches, size)
    order = [(c, m) for start in starts for c in range(chunks) for m in range(start, start + size)]

    def ahead(rank):
        return 2 * (stages - rank - 1) + (chunks - 1) * size

    back = [(chunks - 1 - c, m) for c, m in order]
    return interleaved_rows(stages, microbatches, chunks, ahead=ahead, forward=order, backward=back)


@wrong("order")
def two_backwards_in_turn(stages, microbatches, chunks):
    """Two forwards and two backwards in turn, on the last device, where there is one round."""
    rows = interleaved_schedule(stages, microbatches, chunks)
    if microbatches == stages:
        row = rows[-1]
        first = next(i for i, cell in enumerate(row) if "B" in cell)
        rest = row[first:]
        for i in range(1, len(rest) - 2, 4):
            if "F" in rest[i] and "B" in rest[i + 1]:
                rest[i], rest[i + 1] = rest[i + 1], rest[i]
        rows[-1] = row[:first] + rest
    return rows
