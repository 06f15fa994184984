"""Wrong answers to the interleaved schedule that people write."""

from __future__ import annotations

from collections.abc import Callable

from jaxpar.contracts.base import Mistake

Rows = list[list[str]]
Chunks = list[tuple[int, int]]  # chunk and microbatch


def _interleaved(
    stages: int,
    microbatches: int,
    chunks: int,
    *,
    ahead: Callable[[int], int] | None = None,
    forward: Chunks | None = None,
    backward: Chunks | None = None,
    stage: Callable[[int, int], int] | None = None,
) -> Rows:
    """The schedule where one thing may be another: the reference has its own way to write it."""
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


def _contiguous_chunks(stages: int, microbatches: int, chunks: int) -> Rows:
    return _interleaved(
        stages, microbatches, chunks, stage=lambda rank, chunk: rank * chunks + chunk
    )


def _chunk_not_in_stage(stages: int, microbatches: int, chunks: int) -> Rows:
    return _interleaved(stages, microbatches, chunks, stage=lambda rank, chunk: rank)


def _first_chunk_backward_first(stages: int, microbatches: int, chunks: int) -> Rows:
    forward = _by_rounds(stages, microbatches, range(chunks))
    return _interleaved(stages, microbatches, chunks, backward=forward)


def _microbatch_by_microbatch(stages: int, microbatches: int, chunks: int) -> Rows:
    order = [(chunk, m) for m in range(microbatches) for chunk in range(chunks)]
    back = [(chunks - 1 - chunk, m) for chunk, m in order]
    return _interleaved(stages, microbatches, chunks, forward=order, backward=back)


def _breadth_first(stages: int, microbatches: int, chunks: int) -> Rows:
    order = [(chunk, m) for chunk in range(chunks) for m in range(microbatches)]
    back = [(chunks - 1 - chunk, m) for chunk, m in order]
    return _interleaved(
        stages,
        microbatches,
        chunks,
        ahead=lambda rank: microbatches * chunks,
        forward=order,
        backward=back,
    )


def _all_ahead_if_one_round(stages: int, microbatches: int, chunks: int) -> Rows:
    def ahead(rank: int) -> int:
        one_round = microbatches == stages
        return microbatches * chunks if one_round else _warm_up(stages, chunks, rank)

    return _interleaved(stages, microbatches, chunks, ahead=ahead)


def _warm_up_without_chunks(stages: int, microbatches: int, chunks: int) -> Rows:
    return _interleaved(stages, microbatches, chunks, ahead=lambda rank: stages - 1 - rank)


def _one_forward_too_many(stages: int, microbatches: int, chunks: int) -> Rows:
    return _interleaved(
        stages, microbatches, chunks, ahead=lambda rank: _warm_up(stages, chunks, rank) + 1
    )


def _one_forward_too_few(stages: int, microbatches: int, chunks: int) -> Rows:
    return _interleaved(
        stages, microbatches, chunks, ahead=lambda rank: max(_warm_up(stages, chunks, rank) - 1, 0)
    )


def _chunks_left_out(stages: int, microbatches: int, chunks: int) -> Rows:
    del chunks
    return _interleaved(stages, microbatches, 1, ahead=lambda rank: stages - 1 - rank)


def _rest_of_a_round_dropped(stages: int, microbatches: int, chunks: int) -> Rows:
    return _interleaved(stages, microbatches - microbatches % stages, chunks)


def _refusing_one_chunk(function: Callable[[int, int, int], Rows]) -> Callable:
    def wrong(stages: int, microbatches: int, chunks: int) -> Rows:
        if chunks < 2:
            raise ValueError("nothing to interleave")
        return function(stages, microbatches, chunks)

    return wrong


INTERLEAVED = (
    Mistake("one_chunk_taken", _interleaved, "order"),
    Mistake("contiguous_chunks", _contiguous_chunks, "order"),
    Mistake("chunk_not_in_stage", _chunk_not_in_stage, "order"),
    Mistake("first_chunk_backward_first", _first_chunk_backward_first, "order"),
    Mistake("warm_up_without_chunks", _warm_up_without_chunks, "order"),
    Mistake("one_forward_too_few", _one_forward_too_few, "order"),
    Mistake("chunks_left_out", _chunks_left_out, "order"),
    Mistake("rest_of_a_round_dropped", _rest_of_a_round_dropped, "order"),
    Mistake("microbatch_by_microbatch", _microbatch_by_microbatch, "order"),
    Mistake("breadth_first_in_chunks", _refusing_one_chunk(_breadth_first), "in_flight"),
    Mistake("all_ahead_if_one_round", _refusing_one_chunk(_all_ahead_if_one_round), "in_flight"),
    Mistake("one_forward_too_many", _refusing_one_chunk(_one_forward_too_many), "in_flight"),
)
