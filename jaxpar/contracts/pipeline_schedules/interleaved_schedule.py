"""Interleaved 1F1B: several chunks of the model on each device."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from jaxpar.contracts.base import Call, Contract, PipelineLimits, wrong
from jaxpar.contracts.pipeline_tables import (
    BACKWARD_TWICE,
    BOTH_COSTS,
    EQUAL_COSTS,
    Rows,
    passes,
)
from jaxpar.schedules import Table
from jaxpar.schedules.generators import interleaved_schedule
from jaxpar.schedules.table import Action


def _looped_sizes(rng: np.random.Generator) -> list[Call]:
    """One device, one round of microbatches, several; random ones, many; then what is refused.

    The last ones have more devices, chunks or microbatches than anyone would take for the most,
    and numbers that can be divided, so that fewer of each are not refused.
    """
    p = int(rng.integers(3, 5))
    sizes = [(1, 1, 2), (2, 2, 2), (1, 3, 3), (3, 3, 2), (3, 6, 3)]
    sizes.append((2, 2 * int(rng.integers(2, 5)), 2))
    sizes.append((p, p * int(rng.integers(2, 4)), int(rng.integers(2, 4))))
    sizes.append((5, 5 * int(rng.integers(3, 5)), 4))
    sizes += [(11, 22, 3), (18, 18, 2), (3, 9, int(rng.integers(17, 20)))]
    sizes += [(few, few * int(rng.integers(129, 150) // few), 2) for few in (1, 2)]
    refused = [(p, p + int(rng.integers(1, p)), 2), (p, 2 * p, 1), (4, 2, 2), (1, 3, 1)]
    return [(size, {}) for size in [*sizes, *refused]]


def _out_of_order(table: Table, model: Table) -> str | None:
    """The first device that is wrong in its chunks, in its rounds, or in its turns, in words."""
    for device, (mine, right) in enumerate(zip(passes(table), passes(model), strict=True)):
        wrong = _wrong_chunk(mine, right) or _wrong_round(mine, model) or _wrong_turn(mine)
        if wrong:
            return f"device {device} {wrong}"
    return None


def _of_kind(row: list[Action], name: str) -> list[Action]:
    return [action for action in row if (action.kind == "F") is (name == "forward")]


def _wrong_chunk(mine: list[Action], right: list[Action]) -> str:
    for name in ("forward", "backward"):
        pairs = zip(_of_kind(mine, name), _of_kind(right, name), strict=True)
        for number, (cell, other) in enumerate(pairs):
            if cell.stage != other.stage:
                must = f"one of stage {other.stage} must come"
                return f"does {cell} after {number} other {name}s, where {must}"
    return ""


def _wrong_round(mine: list[Action], model: Table) -> str:
    """Other microbatches in one chunk than in the next, if so many take turns."""
    p, v = model.devices, model.chunks
    for name in ("forward", "backward"):
        cells = [cell.microbatch for cell in _of_kind(mine, name)]
        groups = [set(cells[k : k + p]) for k in range(0, len(cells), p)]
        for k in range(0, len(groups), v):
            if any(group != groups[k] for group in groups[k : k + v]):
                return f"takes other microbatches {name} through one chunk than through the next"
    return ""


def _wrong_turn(mine: list[Action]) -> str:
    kinds = "".join("F" if action.kind == "F" else "B" for action in mine)
    turns = re.match("F+(BF)*B*", kinds)
    done = turns.end() if turns else 0
    return f"does {mine[done]} out of turn" if done < len(kinds) else ""


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
        order="that of interleaved 1F1B: p microbatches through each chunk of a device, in turn, "
        "then the next p, backward from the last chunk on; and after some forwards, a backward and "
        "a forward in turn, then the backwards that are left",
        complaint=_out_of_order,
    ),
    hints=(
        "Write two lists that are the same for all devices: the forwards in their order, as chunk "
        "and microbatch, and the backwards. p microbatches go through chunk 0, then the same p "
        "through chunk 1; backward the last chunk comes first.",
        "Device rank does 2(p - rank - 1) + (chunks - 1)p forwards first (or all, if they are "
        "fewer). Then a forward and a backward in turn, then the backwards that are left.",
        "With k a place in the list of forwards, chunk is k // p % chunks and microbatch is "
        'k // (p * chunks) * p + k % p; the cell is f"{chunk * p + rank}F{microbatch}".',
    ),
    minimal="The last device idles until the first chunk of the others is done: p - 1 chunks, "
    "where without chunks it was p - 1 whole stages.",
    harder="Do only p - rank - 1 + (chunks - 1)p forwards first: the bubble is the same, and less "
    "is kept. What becomes longer, if transfers take time (jaxpar schedule --cost P=0.5)?",
)


Order = list[tuple[int, int]]  # chunk and microbatch, one after the other


def warm_up(stages: int, chunks: int, rank: int) -> int:
    """How many forwards device `rank` does first."""
    return 2 * (stages - 1 - rank) + (chunks - 1) * stages


def _by_rounds(stages: int, microbatches: int, chunks: range) -> Order:
    """As many microbatches as there are stages through one chunk, then through the next."""
    starts = range(0, microbatches - microbatches % stages, stages)
    return [
        (chunk, m) for start in starts for chunk in chunks for m in range(start, start + stages)
    ]


def interleaved_rows(
    stages: int,
    microbatches: int,
    chunks: int,
    *,
    ahead: Callable[[int], int] | None = None,
    forward: Order | None = None,
    backward: Order | None = None,
    stage: Callable[[int, int], int] | None = None,
) -> Rows:
    """The schedule for any number of chunks.

    Args:
        stages: the number of devices.
        microbatches: a multiple of it.
        chunks: how many each device has.
        ahead: how many forwards a device does first.
        forward: the order of the forwards, alike on all devices.
        backward: that of the backwards.
        stage: the stage in the cells of a device's chunk.
    """
    if microbatches % stages:
        raise ValueError("no multiple")
    forward = forward or _by_rounds(stages, microbatches, range(chunks))
    backward = backward or _by_rounds(stages, microbatches, range(chunks)[::-1])
    ahead = ahead or (lambda rank: warm_up(stages, chunks, rank))
    stage = stage or (lambda rank, chunk: chunk * stages + rank)
    rows = []
    for rank in range(stages):
        first = min(ahead(rank), len(forward))
        f = [f"{stage(rank, chunk)}F{m}" for chunk, m in forward]
        b = [f"{stage(rank, chunk)}B{m}" for chunk, m in backward]
        pairs = [cell for pair in zip(f[first:], b, strict=False) for cell in pair]
        rows.append(f[:first] + pairs + b[len(f) - first :])
    return rows


@wrong("order")
def one_chunk_taken(stages: int, microbatches: int, chunks: int) -> Rows:
    """One chunk on each device is 1F1B; fewer than 2 must raise ValueError."""
    return interleaved_rows(stages, microbatches, chunks)


@wrong("order")
def contiguous_chunks(stages: int, microbatches: int, chunks: int) -> Rows:
    """The chunks of a device follow one another (stage rank*chunks + chunk), so a microbatch stays
    there and the others wait; use stage chunk*p + rank."""
    return interleaved_rows(
        stages, microbatches, chunks, stage=lambda rank, chunk: rank * chunks + chunk
    )


@wrong("order")
def chunk_not_in_stage(stages: int, microbatches: int, chunks: int) -> Rows:
    """All chunks of a device have the same stage in their cells; write stage chunk*p + rank."""
    return interleaved_rows(stages, microbatches, chunks, stage=lambda rank, chunk: rank)


@wrong("order")
def first_chunk_backward_first(stages: int, microbatches: int, chunks: int) -> Rows:
    """In the backward pass the first chunk comes first, but gradients come from the last stage; go
    through the chunks in reverse order."""
    forward = _by_rounds(stages, microbatches, range(chunks))
    return interleaved_rows(stages, microbatches, chunks, backward=forward)


@wrong("order")
def warm_up_without_chunks(stages: int, microbatches: int, chunks: int) -> Rows:
    """The forwards before the pairs are those of 1F1B, too few for any microbatch to reach the last
    chunk; do 2(p - rank - 1) + (chunks - 1)p of them."""
    return interleaved_rows(stages, microbatches, chunks, ahead=lambda rank: stages - 1 - rank)


@wrong("order")
def one_forward_too_few(stages: int, microbatches: int, chunks: int) -> Rows:
    """There is one forward too few before the pairs, so the last device has a backward before its
    forward; do 2(p - rank - 1) + (chunks - 1)p of them."""
    return interleaved_rows(
        stages, microbatches, chunks, ahead=lambda rank: max(warm_up(stages, chunks, rank) - 1, 0)
    )


@wrong("order")
def chunks_left_out(stages: int, microbatches: int, chunks: int) -> Rows:
    """There is only one stage on each device; each has `chunks` of them: stage chunk*p + rank."""
    del chunks
    return interleaved_rows(stages, microbatches, 1, ahead=lambda rank: stages - 1 - rank)


@wrong("order")
def rest_of_a_round_dropped(stages: int, microbatches: int, chunks: int) -> Rows:
    """Where the number of microbatches is not a multiple of the number of devices, the last ones
    are dropped; raise ValueError instead."""
    return interleaved_rows(stages, microbatches - microbatches % stages, chunks)


@wrong("order")
def microbatch_by_microbatch(stages: int, microbatches: int, chunks: int) -> Rows:
    """Each microbatch goes through all chunks of a device before the next one, but it has to go
    round the other devices in between; take p microbatches through one chunk, then the same p
    through the next."""
    order = [(chunk, m) for m in range(microbatches) for chunk in range(chunks)]
    back = [(chunks - 1 - chunk, m) for chunk, m in order]
    return interleaved_rows(stages, microbatches, chunks, forward=order, backward=back)


def refuse_one_chunk(chunks: int) -> None:
    """Raises ValueError where there is nothing to interleave."""
    if chunks < 2:
        raise ValueError("nothing to interleave")


@wrong("in_flight")
def breadth_first_in_chunks(stages: int, microbatches: int, chunks: int) -> Rows:
    """All forwards come first, as in the breadth-first schedule, so everything is in flight at
    once; do 2(p - rank - 1) + (chunks - 1)p forwards, then pairs."""
    refuse_one_chunk(chunks)
    order = [(chunk, m) for chunk in range(chunks) for m in range(microbatches)]
    back = [(chunks - 1 - chunk, m) for chunk, m in order]
    return interleaved_rows(
        stages, microbatches, chunks, ahead=lambda rank: len(order), forward=order, backward=back
    )


@wrong("in_flight")
def all_ahead_if_one_round(stages: int, microbatches: int, chunks: int) -> Rows:
    """Where there are as many microbatches as devices, all forwards come first, as in Megatron-LM;
    pairs of a forward and a backward have the same bubble, and keep less."""
    refuse_one_chunk(chunks)

    def ahead(rank: int) -> int:
        one_round = microbatches == stages
        return microbatches * chunks if one_round else warm_up(stages, chunks, rank)

    return interleaved_rows(stages, microbatches, chunks, ahead=ahead)


@wrong("in_flight")
def one_forward_too_many(stages: int, microbatches: int, chunks: int) -> Rows:
    """There is one forward too many before the pairs; do 2(p - rank - 1) + (chunks - 1)p of
    them."""
    refuse_one_chunk(chunks)
    return interleaved_rows(
        stages, microbatches, chunks, ahead=lambda rank: warm_up(stages, chunks, rank) + 1
    )
