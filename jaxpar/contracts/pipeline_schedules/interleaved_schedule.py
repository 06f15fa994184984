"""Exercise interleaved_schedule: several chunks on each device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, PipelineLimits, wrong
from jaxpar.contracts.pipeline_tables import BACKWARD_TWICE, BOTH_COSTS, EQUAL_COSTS
from jaxpar.schedules.generators import interleaved_schedule


def _looped_sizes(rng: np.random.Generator) -> list[Call]:
    """One device, one round of microbatches, several; random ones, many; then what is refused."""
    p = int(rng.integers(3, 5))
    sizes = [(1, 1, 2), (2, 2, 2), (3, 6, 3), (2, 2 * int(rng.integers(2, 5)), 2)]
    sizes += [(p, p * int(rng.integers(2, 4)), int(rng.integers(2, 4)))]
    sizes += [(5, 5 * int(rng.integers(3, 5)), 4)]
    sizes += [(p, p + int(rng.integers(1, p)), 2), (p, 2 * p, 1)]
    return [(size, {}) for size in sizes]


CONTRACT = Contract(
    kind="schedule",
    task="return a row of cells for each device, which holds every p-th stage: 1F1B over chunks",
    reference=interleaved_schedule,
    oracle=interleaved_schedule,
    values=_looped_sizes,
    pipeline=PipelineLimits(
        bubble="idle at most (p - 1)(F + B), F and B of one chunk: 1/chunks of 1F1B's, "
        + BOTH_COSTS,
        in_flight="at most 2(p - rank - 1) + (chunks - 1)p + 1 chunks on device rank",
        costs=(EQUAL_COSTS, BACKWARD_TWICE),
    ),
    hints=(
        "Write two lists that are alike for all devices: the forwards in their order, as chunk and "
        "microbatch, and the backwards. p microbatches go through chunk 0, then the same p through "
        "chunk 1; backward the last chunk comes first.",
        "Device rank does 2(p - rank - 1) + (chunks - 1)p forwards first (or all, if they are "
        "fewer). Then a forward and a backward in turn, then the backwards that are left.",
        "With k a place in the list of forwards, chunk is k // p % chunks and microbatch is "
        'k // (p * chunks) * p + k % p; the cell is f"{chunk * p + rank}F{microbatch}".',
    ),
    minimal="The last device idles until the first chunk of the others is done: p - 1 chunks, "
    "where it was p - 1 stages.",
    harder="Do only p - rank - 1 + (chunks - 1)p forwards first: the bubble is the same, and less "
    "is kept. What becomes longer, if transfers take time (jaxpar schedule --cost P=0.5)?",
)


Rows = list[list[str]]


Chunks = list[tuple[int, int]]  # chunk and microbatch


def _refuse_odd_sizes(stages: int, microbatches: int) -> None:
    if microbatches % stages:
        raise ValueError("no multiple")


def _warm_up(stages: int, chunks: int, rank: int) -> int:
    return 2 * (stages - 1 - rank) + (chunks - 1) * stages


def _by_rounds(stages: int, microbatches: int, chunks: range) -> Chunks:
    starts = range(0, microbatches - microbatches % stages, stages)
    return [
        (chunk, m) for start in starts for chunk in chunks for m in range(start, start + stages)
    ]


@wrong("order")
def one_chunk_taken(
    stages: int,
    microbatches: int,
    chunks: int,
    *,
    ahead: Callable[[int], int] | None = None,
    forward: Chunks | None = None,
    backward: Chunks | None = None,
    stage: Callable[[int, int], int] | None = None,
) -> Rows:
    """One chunk on each device is 1F1B; fewer than 2 must raise ValueError."""
    _refuse_odd_sizes(stages, microbatches)
    forward = forward or _by_rounds(stages, microbatches, range(chunks))
    backward = backward or _by_rounds(stages, microbatches, range(chunks)[::-1])
    ahead = ahead or (lambda rank: _warm_up(stages, chunks, rank))
    stage = stage or (lambda rank, chunk: chunk * stages + rank)
    rows = []
    for rank in range(stages):
        first = min(ahead(rank), len(forward))
        f, b = (
            [f"{stage(rank, chunk)}{kind}{m}" for chunk, m in order]
            for kind, order in (("F", forward), ("B", backward))
        )
        both = [cell for pair in zip(f[first:], b, strict=False) for cell in pair]
        rows.append(f[:first] + both + b[len(f) - first :])
    return rows


@wrong("order")
def contiguous_chunks(stages: int, microbatches: int, chunks: int) -> Rows:
    """The chunks of a device follow one another (stage rank*chunks + chunk), so a microbatch stays
    there and the others wait; use stage chunk*p + rank."""
    return one_chunk_taken(
        stages, microbatches, chunks, stage=lambda rank, chunk: rank * chunks + chunk
    )


@wrong("order")
def chunk_not_in_stage(stages: int, microbatches: int, chunks: int) -> Rows:
    """All chunks of a device have the same stage in their cells; write stage chunk*p + rank."""
    return one_chunk_taken(stages, microbatches, chunks, stage=lambda rank, chunk: rank)


@wrong("order")
def first_chunk_backward_first(stages: int, microbatches: int, chunks: int) -> Rows:
    """Backward the first chunk comes first, but gradients come from the last stage; go through the
    chunks in reverse order."""
    forward = _by_rounds(stages, microbatches, range(chunks))
    return one_chunk_taken(stages, microbatches, chunks, backward=forward)


@wrong("order")
def warm_up_without_chunks(stages: int, microbatches: int, chunks: int) -> Rows:
    """The forwards before the pairs are those of 1F1B, too few for any microbatch to reach the last
    chunk; do 2(p - rank - 1) + (chunks - 1)p of them."""
    return one_chunk_taken(stages, microbatches, chunks, ahead=lambda rank: stages - 1 - rank)


@wrong("order")
def one_forward_too_few(stages: int, microbatches: int, chunks: int) -> Rows:
    """There is one forward too few before the pairs, so the last device has a backward before its
    forward; do 2(p - rank - 1) + (chunks - 1)p of them."""
    return one_chunk_taken(
        stages, microbatches, chunks, ahead=lambda rank: max(_warm_up(stages, chunks, rank) - 1, 0)
    )


@wrong("order")
def chunks_left_out(stages: int, microbatches: int, chunks: int) -> Rows:
    """There is only one stage on each device; each has `chunks` of them: stage chunk*p + rank."""
    del chunks
    return one_chunk_taken(stages, microbatches, 1, ahead=lambda rank: stages - 1 - rank)


@wrong("order")
def rest_of_a_round_dropped(stages: int, microbatches: int, chunks: int) -> Rows:
    """Where the microbatches are no multiple of the devices the last ones are dropped; raise
    ValueError instead."""
    return one_chunk_taken(stages, microbatches - microbatches % stages, chunks)


@wrong("order")
def microbatch_by_microbatch(stages: int, microbatches: int, chunks: int) -> Rows:
    """Each microbatch goes through all chunks of a device before the next one, but it has to go
    round the other devices in between; take p microbatches through one chunk, then the same p
    through the next."""
    order = [(chunk, m) for m in range(microbatches) for chunk in range(chunks)]
    back = [(chunks - 1 - chunk, m) for chunk, m in order]
    return one_chunk_taken(stages, microbatches, chunks, forward=order, backward=back)


def _breadth_first(stages: int, microbatches: int, chunks: int) -> Rows:
    order = [(chunk, m) for chunk in range(chunks) for m in range(microbatches)]
    back = [(chunks - 1 - chunk, m) for chunk, m in order]
    return one_chunk_taken(
        stages,
        microbatches,
        chunks,
        ahead=lambda rank: microbatches * chunks,
        forward=order,
        backward=back,
    )


def _refusing_one_chunk(function: Callable[[int, int, int], Rows]) -> Callable:
    def wrong(stages: int, microbatches: int, chunks: int) -> Rows:
        if chunks < 2:
            raise ValueError("nothing to interleave")
        return function(stages, microbatches, chunks)

    return wrong


@wrong("in_flight")
def breadth_first_in_chunks(*args: Any, **how: Any) -> Any:
    """All forwards come first, as in the breadth-first schedule, so everything is in flight at
    once; do 2(p - rank - 1) + (chunks - 1)p forwards, then pairs."""
    return (_refusing_one_chunk(_breadth_first))(*args, **how)


def _all_ahead_if_one_round(stages: int, microbatches: int, chunks: int) -> Rows:
    def ahead(rank: int) -> int:
        one_round = microbatches == stages
        return microbatches * chunks if one_round else _warm_up(stages, chunks, rank)

    return one_chunk_taken(stages, microbatches, chunks, ahead=ahead)


@wrong("in_flight")
def all_ahead_if_one_round(*args: Any, **how: Any) -> Any:
    """Where there are as many microbatches as devices all forwards come first, as Megatron-LM does
    it; the pairs have the same bubble, and keep less."""
    return (_refusing_one_chunk(_all_ahead_if_one_round))(*args, **how)


def _one_forward_too_many(stages: int, microbatches: int, chunks: int) -> Rows:
    return one_chunk_taken(
        stages, microbatches, chunks, ahead=lambda rank: _warm_up(stages, chunks, rank) + 1
    )


@wrong("in_flight")
def one_forward_too_many(*args: Any, **how: Any) -> Any:
    """There is one forward too many before the pairs; do 2(p - rank - 1) + (chunks - 1)p of
    them."""
    return (_refusing_one_chunk(_one_forward_too_many))(*args, **how)
