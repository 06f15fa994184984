"""Wrong answers to GPipe's and 1F1B's schedules that people write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jaxpar.contracts.base import Mistake

Rows = list[list[str]]


def row(stage: int, work: Iterable[str]) -> list[str]:
    """Cells of one stage; of each kind the first is that of microbatch 0, and so on."""
    counts: Counter[str] = Counter()
    cells = []
    for kind in work:
        cells.append(f"{stage}{kind}{counts[kind]}")
        counts[kind] += 1
    return cells


def _last_microbatch_dropped(stages: int, microbatches: int) -> Rows:
    return [row(s, "F" * (microbatches - 1) + "B" * (microbatches - 1)) for s in range(stages)]


def _stages_upside_down(stages: int, microbatches: int) -> Rows:
    return [row(s, "F" * microbatches + "B" * microbatches) for s in reversed(range(stages))]


def _backwards_first(stages: int, microbatches: int) -> Rows:
    return [row(s, "B" * microbatches + "F" * microbatches) for s in range(stages)]


def _forwards_only(stages: int, microbatches: int) -> Rows:
    return [row(s, "F" * microbatches) for s in range(stages)]


def _microbatch_before_stage(stages: int, microbatches: int) -> Rows:
    return [[f"{m}{kind}{s}" for kind in "FB" for m in range(microbatches)] for s in range(stages)]


def _counted_from_one(stages: int, microbatches: int) -> Rows:
    counts = range(1, microbatches + 1)
    return [[f"{s}{kind}{m}" for kind in "FB" for m in counts] for s in range(1, stages + 1)]


def _one_microbatch_at_a_time(stages: int, microbatches: int) -> Rows:
    return [row(s, "FB" * microbatches) for s in range(stages)]


def _each_stage_starts_elsewhere(stages: int, microbatches: int) -> Rows:
    orders = [[(s + i) % microbatches for i in range(microbatches)] for s in range(stages)]
    return [[f"{s}{kind}{m}" for kind in "FB" for m in order] for s, order in enumerate(orders)]


def _odd_stages_return_last_first(stages: int, microbatches: int) -> Rows:
    return [
        row(s, "F" * microbatches) + row(s, "B" * microbatches)[:: (-1) ** s] for s in range(stages)
    ]


def _1f1b(stages: int, microbatches: int, aheads: Iterable[int], both: str = "FB") -> Rows:
    """1F1B with these numbers of forwards first."""
    cut = [min(ahead, microbatches) for ahead in aheads]
    return [
        row(s, "F" * ahead + both * (microbatches - ahead) + "B" * ahead)
        for s, ahead in zip(range(stages), cut, strict=True)
    ]


def _all_forwards_first(stages: int, microbatches: int) -> Rows:
    return _1f1b(stages, microbatches, [microbatches] * stages)


def _warm_up_too_long(stages: int, microbatches: int) -> Rows:
    return _1f1b(stages, microbatches, range(stages, 0, -1))


def _warm_up_too_short(stages: int, microbatches: int) -> Rows:
    return _1f1b(stages, microbatches, (max(stages - 2 - rank, 0) for rank in range(stages)))


def _warm_up_alike(stages: int, microbatches: int) -> Rows:
    return _1f1b(stages, microbatches, [stages - 1] * stages)


def _warm_up_doubled(stages: int, microbatches: int) -> Rows:
    return _1f1b(stages, microbatches, range(2 * stages - 2, -1, -2))


def _warm_up_by_rank(stages: int, microbatches: int) -> Rows:
    return _1f1b(stages, microbatches, range(stages))


def _warm_up_past_the_last(stages: int, microbatches: int) -> Rows:
    rows = []
    for rank in range(stages):
        ahead = stages - 1 - rank
        rows.append(row(rank, "F" * ahead + "FB" * (microbatches - ahead) + "B" * ahead))
    return rows


def _backward_then_forward(stages: int, microbatches: int) -> Rows:
    return _1f1b(stages, microbatches, range(stages - 1, -1, -1), both="BF")


def _no_cool_down(stages: int, microbatches: int) -> Rows:
    rows = _1f1b(stages, microbatches, range(stages - 1, -1, -1))
    aheads = (min(stages - 1 - rank, microbatches) for rank in range(stages))
    return [cells[: len(cells) - ahead] for cells, ahead in zip(rows, aheads, strict=True)]


def _newest_first(stages: int, microbatches: int) -> Rows:
    rows = []
    for cells in _1f1b(stages, microbatches, range(stages - 1, -1, -1)):
        stack: list[str] = []
        mine = []
        for cell in cells:
            if "F" in cell:
                stack.append(cell)
            mine.append(cell if "F" in cell else stack.pop().replace("F", "B"))
        rows.append(mine)
    return rows


GPIPE = (
    Mistake("last_microbatch_dropped", _last_microbatch_dropped, "order"),
    Mistake("stages_upside_down", _stages_upside_down, "order"),
    Mistake("backwards_first", _backwards_first, "order"),
    Mistake("forwards_only", _forwards_only, "order"),
    Mistake("microbatch_before_stage", _microbatch_before_stage, "order"),
    Mistake("cells_counted_from_one", _counted_from_one, "order"),
    Mistake("one_microbatch_at_a_time", _one_microbatch_at_a_time, "bubble"),
    Mistake("each_stage_starts_elsewhere", _each_stage_starts_elsewhere, "bubble"),
    Mistake("odd_stages_return_last_first", _odd_stages_return_last_first, "bubble"),
)
ONE_F_ONE_B = (
    Mistake("all_forwards_first", _all_forwards_first, "in_flight"),
    Mistake("warm_up_too_long", _warm_up_too_long, "in_flight"),
    Mistake("warm_up_too_short", _warm_up_too_short, "bubble"),
    Mistake("warm_up_alike", _warm_up_alike, "bubble"),
    Mistake("warm_up_doubled", _warm_up_doubled, "in_flight"),
    Mistake("warm_up_by_rank", _warm_up_by_rank, "order"),
    Mistake("warm_up_past_the_last", _warm_up_past_the_last, "order"),
    Mistake("backward_then_forward", _backward_then_forward, "order"),
    Mistake("no_cool_down", _no_cool_down, "order"),
    Mistake("newest_first", _newest_first, "bubble"),
    Mistake("never_two_at_once", _one_microbatch_at_a_time, "bubble"),
)
