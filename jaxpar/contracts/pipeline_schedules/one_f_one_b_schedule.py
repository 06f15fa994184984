"""1F1B: a backward after each forward."""

from __future__ import annotations

from collections.abc import Iterable

from jaxpar.contracts.base import Contract, PipelineLimits, wrong
from jaxpar.contracts.pipeline_tables import (
    BACKWARD_TWICE,
    BOTH_COSTS,
    EQUAL_COSTS,
    Rows,
    cells_of_stage,
    kinds_differ,
    pipeline_sizes,
)
from jaxpar.schedules.generators import one_f_one_b_schedule

CONTRACT = Contract(
    kind="schedule",
    task="return a row of cells for each stage: some forwards, then forward and backward in turn",
    reference=one_f_one_b_schedule,
    oracle=one_f_one_b_schedule,
    values=pipeline_sizes,
    pipeline=PipelineLimits(
        bubble=f"makespan at most (m + p - 1)(F + B), as GPipe's, {BOTH_COSTS}",
        in_flight="at most p - rank microbatches on device rank",
        costs=(EQUAL_COSTS, BACKWARD_TWICE),
        order="that of 1F1B: p - 1 - rank forwards (or all m, if they are fewer), then a forward "
        "and a backward in turn, then the backwards that are left",
        complaint=kinds_differ,
    ),
    hints=(
        "The last stage can do a backward right after its first forward, and then one of each in "
        "turn. How many forwards must the stage before it do, so as not to wait?",
        "Device rank does p - 1 - rank forwards first, but not more than there are microbatches. "
        "Then comes a forward, a backward, and so on, and in the end the backwards that are left.",
        "The k-th backward of a row is that of microbatch k, as is the k-th forward: two counters, "
        "or two loops, write them all.",
    ),
    minimal="The first microbatch has p - rank stages to go to the end, and this device does as "
    "many forwards before its backward can arrive.",
    harder="Let each device do twice as many forwards first, and write the table to a CSV file. "
    "What does it keep, and what does it gain: jaxpar schedule --from FILE --cost P=0.5?",
)


def _1f1b(stages: int, microbatches: int, aheads: Iterable[int], both: str = "FB") -> Rows:
    """1F1B with so many forwards first on each device, and with `both` in its pairs."""
    rows = []
    for rank, ahead in zip(range(stages), aheads, strict=True):
        first = min(ahead, microbatches)
        rows.append(cells_of_stage(rank, "F" * first + both * (microbatches - first) + "B" * first))
    return rows


@wrong("in_flight")
def all_forwards_first(stages: int, microbatches: int) -> Rows:
    """This is GPipe: all forwards come before any backward, so all microbatches are in flight at
    once; begin with backwards after p - 1 - rank forwards."""
    return _1f1b(stages, microbatches, [microbatches] * stages)


@wrong("in_flight")
def warm_up_too_long(stages: int, microbatches: int) -> Rows:
    """There is one forward too many before the pairs of forward and backward; device rank does p -
    1 - rank of them first, and the last device none."""
    return _1f1b(stages, microbatches, range(stages, 0, -1))


@wrong("bubble")
def warm_up_too_short(stages: int, microbatches: int) -> Rows:
    """There is one forward too few before the pairs, so each device waits for the next one's
    backward; do p - 1 - rank of them first."""
    return _1f1b(stages, microbatches, (max(stages - 2 - rank, 0) for rank in range(stages)))


@wrong("bubble")
def warm_up_alike(stages: int, microbatches: int) -> Rows:
    """All devices do p - 1 forwards first, so the last one begins its first backward late; device
    rank needs p - 1 - rank of them."""
    return _1f1b(stages, microbatches, [stages - 1] * stages)


@wrong("in_flight")
def warm_up_doubled(stages: int, microbatches: int) -> Rows:
    """There are twice as many forwards before the pairs as needed; the bubble is the same with p -
    1 - rank, and less is in flight."""
    return _1f1b(stages, microbatches, range(2 * stages - 2, -1, -2))


@wrong("order")
def warm_up_by_rank(stages: int, microbatches: int) -> Rows:
    """The later the stage, the more forwards it does first, so the devices wait for one another
    forever; device rank does p - 1 - rank of them first."""
    return _1f1b(stages, microbatches, range(stages))


@wrong("order")
def warm_up_past_the_last(stages: int, microbatches: int) -> Rows:
    """With few microbatches there are more forwards before the pairs than microbatches; take the
    smaller of both numbers."""
    rows = []
    for rank in range(stages):
        ahead = stages - 1 - rank
        rows.append(cells_of_stage(rank, "F" * ahead + "FB" * (microbatches - ahead) + "B" * ahead))
    return rows


@wrong("order")
def backward_then_forward(stages: int, microbatches: int) -> Rows:
    """In each pair the backward comes first, before the last device has done any forward; put the
    forward before it."""
    return _1f1b(stages, microbatches, range(stages - 1, -1, -1), both="BF")


@wrong("order")
def no_cool_down(stages: int, microbatches: int) -> Rows:
    """The backwards of the first p - 1 - rank forwards are missing; do them at the end of the
    row."""
    rows = _1f1b(stages, microbatches, range(stages - 1, -1, -1))
    aheads = (min(stages - 1 - rank, microbatches) for rank in range(stages))
    return [cells[: len(cells) - ahead] for cells, ahead in zip(rows, aheads, strict=True)]


@wrong("bubble")
def newest_first(stages: int, microbatches: int) -> Rows:
    """The backward is that of the newest forward, which is not back from the later stages yet; take
    the oldest that is in flight."""
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


@wrong("bubble")
def never_two_at_once(stages: int, microbatches: int) -> Rows:
    """Each microbatch goes forward and backward before the next one begins, so one device works at
    a time; do p - 1 - rank forwards before the pairs."""
    return [cells_of_stage(s, "FB" * microbatches) for s in range(stages)]
