"""Wrong answers to the plain numbers of pipelines that people write."""

from __future__ import annotations

from collections.abc import Callable

from jaxpar.contracts.base import Mistake

Rows = list[list[str]]


def _over_the_ideal(stages: int, microbatches: int, chunks: int) -> float:
    return (stages - 1) / (chunks * microbatches)


def _over_the_microbatches(stages: int, microbatches: int, chunks: int) -> float:
    del chunks
    return (stages - 1) / microbatches


def _chunks_ignored(stages: int, microbatches: int, chunks: int) -> float:
    del chunks
    return (stages - 1) / (microbatches + stages - 1)


def _share_divided_by_chunks(stages: int, microbatches: int, chunks: int) -> float:
    return (stages - 1) / (microbatches + stages - 1) / chunks


def _chunks_as_devices(stages: int, microbatches: int, chunks: int) -> float:
    p = stages * chunks
    return (p - 1) / (microbatches + p - 1)


def _all_stages_idle(stages: int, microbatches: int, chunks: int) -> float:
    return stages / (chunks * microbatches + stages)


def _busy_share(stages: int, microbatches: int, chunks: int) -> float:
    return chunks * microbatches / (chunks * microbatches + stages - 1)


def _ends_on_time(stages: int, microbatches: int, chunks: int) -> float:
    return (stages - 1) / (2 * chunks * microbatches + stages - 1)


def _microbatches_as_steps(stages: int, microbatches: int, chunks: int) -> float:
    return (stages - 1) / (chunks * (microbatches + stages - 1) + stages - 1)


def _peaks(table: Rows, step: Callable[[str], int]) -> list[int]:
    """The greatest sum of steps from the left, for each row."""
    peaks = []
    for row in table:
        kept = peak = 0
        for cell in row:
            kept += step(cell)
            peak = max(peak, kept)
        peaks.append(peak)
    return peaks


def _adds(cell: str, frees: str) -> int:
    """One more for F, one less for the kinds that free."""
    return ("F" in cell) - any(kind in cell for kind in frees)


def _freed_at_i(table: Rows) -> list[int]:
    return _peaks(table, lambda cell: _adds(cell, "BI"))


def _freed_twice(table: Rows) -> list[int]:
    return _peaks(table, lambda cell: _adds(cell, "BIW"))


def _freed_by_b_only(table: Rows) -> list[int]:
    return _peaks(table, lambda cell: _adds(cell, "B"))


def _never_freed(table: Rows) -> list[int]:
    return _peaks(table, lambda cell: _adds(cell, ""))


def _idle_cells_counted(table: Rows) -> list[int]:
    return _peaks(table, lambda cell: _adds(cell, "BW") + (not cell))


def _left_at_the_end(table: Rows) -> list[int]:
    return [sum(_adds(cell, "BW") for cell in row) for row in table]


def _forwards_before_a_backward(table: Rows) -> list[int]:
    counts = []
    for row in table:
        backward = next(i for i, cell in enumerate(row) if cell and "F" not in cell)
        counts.append(sum("F" in cell for cell in row[:backward]))
    return counts


def _counted_after_the_backward(table: Rows) -> list[int]:
    """The peak of what is kept when a cell is done and the next one has not begun."""
    peaks = []
    for row in table:
        work = [cell for cell in row if cell]
        kept = [sum(_adds(cell, "BW") for cell in work[:end]) for end in range(len(work) + 1)]
        after = [k for k, cell in zip(kept[1:], work, strict=True) if "F" not in cell]
        peaks.append(max(after))
    return peaks


def _microbatches_not_chunks(table: Rows) -> list[int]:
    peaks = []
    for row in table:
        kept: list[str] = []
        peak = 0
        for cell in row:
            microbatch = cell.lstrip("0123456789")[1:]
            if "F" in cell:
                kept.append(microbatch)
            elif "B" in cell or "W" in cell:
                kept.remove(microbatch)
            peak = max(peak, len(set(kept)))
        peaks.append(peak)
    return peaks


def _worst_device_for_all(table: Rows) -> list[int]:
    peaks = _peaks(table, lambda cell: _adds(cell, "BW"))
    return [max(peaks)] * len(peaks)


def _formula_of_1f1b(table: Rows) -> list[int]:
    p, m = len(table), sum("F" in cell for cell in table[0])
    return [min(m, p - rank) for rank in range(p)]


BUBBLE_FRACTION = (
    Mistake("bubble_over_the_ideal", _over_the_ideal, "values"),
    Mistake("bubble_over_the_microbatches", _over_the_microbatches, "values"),
    Mistake("bubble_chunks_ignored", _chunks_ignored, "values"),
    Mistake("bubble_divided_by_chunks", _share_divided_by_chunks, "values"),
    Mistake("bubble_chunks_as_devices", _chunks_as_devices, "values"),
    Mistake("bubble_of_all_stages", _all_stages_idle, "values"),
    Mistake("bubble_of_forwards", _ends_on_time, "values"),
    Mistake("bubble_counted_twice", _microbatches_as_steps, "values"),
    Mistake("busy_share", _busy_share, "values"),
)
STASH_SIZE = (
    Mistake("stash_freed_at_i", _freed_at_i, "values"),
    Mistake("stash_freed_twice", _freed_twice, "values"),
    Mistake("stash_freed_by_b_only", _freed_by_b_only, "values"),
    Mistake("stash_never_freed", _never_freed, "values"),
    Mistake("stash_idle_cells_counted", _idle_cells_counted, "values"),
    Mistake("stash_left_at_the_end", _left_at_the_end, "values"),
    Mistake("stash_forwards_first", _forwards_before_a_backward, "values"),
    Mistake("stash_after_the_backward", _counted_after_the_backward, "values"),
    Mistake("stash_microbatches_not_chunks", _microbatches_not_chunks, "values"),
    Mistake("stash_worst_device_for_all", _worst_device_for_all, "values"),
    Mistake("stash_formula_of_1f1b", _formula_of_1f1b, "values"),
)
