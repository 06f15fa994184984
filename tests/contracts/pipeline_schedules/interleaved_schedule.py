"""Answers to interleaved_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

import re

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right
from tests.contracts.pipeline_tables import in_two


def _interleaved(stages, microbatches, chunks, ahead, stage=None):
    """By the counters of Megatron-LM: which chunk and microbatch the k-th forward is of."""
    if microbatches % stages:
        raise ValueError("microbatches must be a multiple of stages")
    total, group = microbatches * chunks, stages * chunks

    def cell(rank, kind, k):
        chunk, microbatch = k % group // stages, k // group * stages + k % stages
        chunk = chunk if kind == "F" else chunks - 1 - chunk
        where = stage(rank, chunk) if stage else chunk * stages + rank
        return f"{where}{kind}{microbatch}"

    rows = []
    for rank in range(stages):
        warm_up = min(ahead(rank), total)
        row = [cell(rank, "F", k) for k in range(warm_up)]
        for k in range(total - warm_up):
            row += [cell(rank, "F", warm_up + k), cell(rank, "B", k)]
        rows.append(row + [cell(rank, "B", k) for k in range(total - warm_up, total)])
    return rows


def _refuse_one_chunk(chunks):
    if chunks < 2:
        raise ValueError("chunks must be 2 or more")


@right
def as_megatron(stages, microbatches, chunks):
    _refuse_one_chunk(chunks)

    def ahead(rank):
        return 2 * (stages - rank - 1) + (chunks - 1) * stages

    return _interleaved(stages, microbatches, chunks, ahead)


@right
def with_fewer_in_flight(stages, microbatches, chunks):
    """Where transfers take no time, half as many forwards first are enough."""
    _refuse_one_chunk(chunks)

    def ahead(rank):
        return (stages - rank - 1) + (chunks - 1) * stages

    return _interleaved(stages, microbatches, chunks, ahead)


@right
def backward_then_forward(stages, microbatches, chunks):
    """One forward more at first, then pairs that begin with the backward."""
    rows = []
    for row in as_megatron(stages, microbatches, chunks):
        first = next(i for i, cell in enumerate(row) if "B" in cell)
        forward = [cell for cell in row[first:] if "F" in cell]
        backward = [cell for cell in row if "B" in cell]
        pairs = [c for pair in zip(backward, forward, strict=False) for c in pair]
        rows.append(row[:first] + pairs + backward[len(forward) :])
    return rows


@right
def backward_in_two(stages, microbatches, chunks):
    rows = as_megatron(stages, microbatches, chunks)
    return [in_two(row) for row in rows]


@right
def rounds_in_reverse(stages, microbatches, chunks):
    rows = as_megatron(stages, microbatches, chunks)
    return [
        [re.sub(r"\d+$", lambda m: str(microbatches - 1 - int(m[0])), cell) for cell in row]
        for row in rows
    ]


@right
def idle_between(stages, microbatches, chunks):
    rows = as_megatron(stages, microbatches, chunks)
    return [[x for cell in row for x in ("", cell)] for row in rows]


@wrong("order")
def takes_any_number(stages, microbatches, chunks):
    if microbatches % stages:
        return as_megatron(stages, microbatches + -microbatches % stages, chunks)
    return as_megatron(stages, microbatches, chunks)


@wrong("order")
def asserts_a_multiple(stages, microbatches, chunks):
    assert microbatches % stages == 0
    return as_megatron(stages, microbatches, chunks)


@wrong("order")
def in_words(stages, microbatches, chunks):
    if microbatches % stages:
        return "raises ValueError"
    return as_megatron(stages, microbatches, chunks)


@wrong("order")
def takes_one_chunk(stages, microbatches, chunks):
    if chunks == 1:
        return _interleaved(stages, microbatches, 1, lambda rank: stages - 1 - rank)
    return as_megatron(stages, microbatches, chunks)


@wrong("order")
def always_refuses(stages, microbatches, chunks):
    raise ValueError("no multiple")


@wrong("order")
def in_a_v(stages, microbatches, chunks):
    def stage(rank, chunk):
        return chunk * stages + (stages - 1 - rank if chunk % 2 else rank)

    def ahead(rank):
        return 2 * (stages - rank - 1) + (chunks - 1) * stages

    return _interleaved(stages, microbatches, chunks, ahead, stage)


@wrong("order")
def more_chunks_than_asked(stages, microbatches, chunks):
    return as_megatron(stages, microbatches, chunks + 1)


@wrong("order")
def one_stage_on_each(stages, microbatches, chunks):
    """1F1B, where each stage takes all chunks in one cell."""
    if microbatches % stages:
        raise ValueError("no multiple")
    return _interleaved(stages, microbatches, 1, lambda rank: stages - 1 - rank)


@wrong("in_flight")
def first_device_ahead(stages, microbatches, chunks):
    _refuse_one_chunk(chunks)

    def ahead(rank):
        return 2 * (stages - rank - 1) + (chunks - 1) * stages + (rank == 0)

    return _interleaved(stages, microbatches, chunks, ahead)
