"""ZB-H1: weight gradients fill the idle time of 1F1B."""

from __future__ import annotations

from jaxpar.contracts.base import Contract, PipelineLimits, wrong
from jaxpar.contracts.pipeline_tables import (
    BACKWARD_TWICE,
    Rows,
    cells_of_stage,
    kinds_differ,
    pipeline_sizes,
)
from jaxpar.schedules.generators import zero_bubble_h1_schedule

CONTRACT = Contract(
    kind="schedule",
    task="return a row of cells for each stage: 1F1B with I and W, W late enough to fill the end",
    reference=zero_bubble_h1_schedule,
    oracle=zero_bubble_h1_schedule,
    values=pipeline_sizes,
    pipeline=PipelineLimits(
        bubble="idle at most (p - 1)(F + I - W) where F, I and W take equally long and m >= p; "
        "with fewer microbatches, no more than the library's",
        in_flight="at most p microbatches on each device, from F to W",
        costs=(BACKWARD_TWICE,),
        order="that of 1F1B, with I in place of B: p - 1 - rank forwards (or all m, if they are "
        "fewer), then F and I in turn, then the I that are left; W anywhere after its I",
        complaint=kinds_differ,
    ),
    hints=(
        "Stage s - 1 waits for I of stage s, and nobody waits for W. So write 1F1B with I in "
        "place of B: where do the devices idle now, and which W can fill that?",
        "As many forwards first as in 1F1B. Device rank keeps rank weight gradients for later: its "
        "first rank I have no W after them. From then on, each I is followed by the oldest W.",
        "The rank W that are left come at the end of the row. If there are fewer microbatches "
        "than that, all W do.",
    ),
    minimal="More late W would keep more activations than the first device of 1F1B does; fewer "
    "would leave idle time at the end.",
    harder="Allow 2p - 1 in flight (ZB-H2): no device idles between its first cell and its last.",
)


def kinds_of_row(microbatches: int, *, ahead: int, late: int, w: str = "W") -> str:
    """The kinds of a row with `ahead` forwards first, and W `late` microbatches behind I."""
    ahead = min(ahead, microbatches)
    waits = min(late, microbatches)
    kinds = "F" * ahead
    for done in range(microbatches):
        kinds += "F" * (done < microbatches - ahead) + "I" + w * (done >= waits)
    return kinds + w * waits


def _one_f_one_i(stages: int, microbatches: int, rank: int, *, late: int = 0, w: str = "W") -> str:
    """The kinds of a row of 1F1B with I in place of B."""
    return kinds_of_row(microbatches, ahead=stages - 1 - rank, late=late, w=w)


def rows_with_late_weights(microbatches: int, lates: list[int], *, twice: int = 1) -> Rows:
    """ZB-H1 where each device lets so many W wait, with `twice` as many forwards first."""
    last = len(lates) - 1
    return [
        cells_of_stage(rank, kinds_of_row(microbatches, ahead=twice * (last - rank), late=late))
        for rank, late in enumerate(lates)
    ]


@wrong("order")
def weight_gradient_first(stages: int, microbatches: int) -> Rows:
    """W comes before I of the same microbatch; the stage before waits for I, and nobody for W, so
    do I first."""
    swap = str.maketrans("IW", "WI")
    return [
        cells_of_stage(rank, _one_f_one_i(stages, microbatches, rank).translate(swap))
        for rank in range(stages)
    ]


@wrong("order")
def weight_gradients_left_out(stages: int, microbatches: int) -> Rows:
    """There is no W; the gradient of the weights is the other half of the backward, so add a W for
    each I."""
    return [
        cells_of_stage(rank, _one_f_one_i(stages, microbatches, rank, w=""))
        for rank in range(stages)
    ]


@wrong("order")
def whole_backward_and_w(stages: int, microbatches: int) -> Rows:
    """B is the whole backward, W included; where there is a W, write I in place of B."""
    rows = []
    for rank in range(stages):
        kinds = _one_f_one_i(stages, microbatches, rank, late=rank)
        rows.append(cells_of_stage(rank, kinds.replace("I", "B")))
    return rows


@wrong("bubble")
def backward_not_split(stages: int, microbatches: int) -> Rows:
    """This is 1F1B: B makes the stage before wait for gradients of weights that it does not need;
    split it into I and W, and let W wait."""
    rows = []
    for rank in range(stages):
        kinds = _one_f_one_i(stages, microbatches, rank, w="")
        rows.append(cells_of_stage(rank, kinds.replace("I", "B")))
    return rows


@wrong("bubble")
def no_w_waits(stages: int, microbatches: int) -> Rows:
    """Each W comes right after its I, so none is left to fill the idle time; let device rank keep
    `rank` of them for later."""
    return rows_with_late_weights(microbatches, [0] * stages)


@wrong("bubble")
def all_w_at_the_end(stages: int, microbatches: int) -> Rows:
    """All W come last, so that the first device has all of its own to do when the others are done,
    and everything is in flight; let `rank` of them wait, no more."""
    return rows_with_late_weights(microbatches, [microbatches] * stages)


@wrong("bubble")
def first_device_waits_most(stages: int, microbatches: int) -> Rows:
    """The first device lets the most W wait, but it is the last one that is done early; device rank
    lets `rank` of them wait."""
    return rows_with_late_weights(microbatches, list(range(stages))[::-1])


@wrong("bubble")
def all_wait_alike(stages: int, microbatches: int) -> Rows:
    """All devices let p - 1 W wait, but the first one has no idle time at the end; device rank lets
    `rank` of them wait."""
    return rows_with_late_weights(microbatches, [stages - 1] * stages)


@wrong("bubble")
def w_one_too_early(stages: int, microbatches: int) -> Rows:
    """One W too few waits, so there is idle time at the end; let device rank keep `rank` of
    them."""
    return rows_with_late_weights(microbatches, [max(rank - 1, 0) for rank in range(stages)])


@wrong("bubble")
def w_one_too_late(stages: int, microbatches: int) -> Rows:
    """One W too many waits, so more is in flight than on the first device of 1F1B; let device rank
    keep `rank` of them."""
    return rows_with_late_weights(microbatches, [rank + 1 for rank in range(stages)])


@wrong("bubble")
def h2_as_h1(stages: int, microbatches: int) -> Rows:
    """This is ZB-H2: twice as many forwards come first, and up to 2p - 1 are in flight; ZB-H1 does
    as many first as 1F1B."""
    return rows_with_late_weights(microbatches, [2 * rank for rank in range(stages)], twice=2)


@wrong("bubble")
def one_forward_more(stages: int, microbatches: int) -> Rows:
    """There is one forward too many before the pairs of F and I; device rank does p - 1 - rank of
    them first, as in 1F1B."""
    return [
        cells_of_stage(rank, kinds_of_row(microbatches, ahead=stages - rank, late=rank))
        for rank in range(stages)
    ]
