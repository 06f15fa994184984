"""Wrong answers to the zero-bubble schedule that people write."""

from __future__ import annotations

from jaxpar.contracts.base import Mistake
from jaxpar.contracts.schedules_mistakes import Rows, row


def _h1(rank: int, ahead: int, late: int, microbatches: int, w: str = "W") -> str:
    """The kinds of a row with `ahead` forwards first, and W `late` microbatches behind I."""
    ahead = min(ahead, microbatches)
    waits = min(late, microbatches)
    kinds = ["F"] * ahead
    for done in range(microbatches):
        kinds += ["F"] * (done < microbatches - ahead) + ["I"] + [w] * (done >= waits)
    return "".join(kinds) + w * waits


def _rows(stages: int, microbatches: int, lates: list[int], twice: int = 1) -> Rows:
    return [
        row(rank, _h1(rank, twice * (stages - 1 - rank), late, microbatches))
        for rank, late in enumerate(lates)
    ]


def _weight_gradient_first(stages: int, microbatches: int) -> Rows:
    swap = str.maketrans("IW", "WI")
    return [row(s, _h1(s, stages - 1 - s, 0, microbatches).translate(swap)) for s in range(stages)]


def _weight_gradients_left_out(stages: int, microbatches: int) -> Rows:
    return [row(s, _h1(s, stages - 1 - s, 0, microbatches, w="")) for s in range(stages)]


def _whole_backward_and_w(stages: int, microbatches: int) -> Rows:
    kinds = (_h1(s, stages - 1 - s, s, microbatches) for s in range(stages))
    return [row(s, one.replace("I", "B")) for s, one in enumerate(kinds)]


def _backward_not_split(stages: int, microbatches: int) -> Rows:
    kinds = (_h1(s, stages - 1 - s, 0, microbatches, w="") for s in range(stages))
    return [row(s, one.replace("I", "B")) for s, one in enumerate(kinds)]


def _no_w_waits(stages: int, microbatches: int) -> Rows:
    return _rows(stages, microbatches, [0] * stages)


def _all_w_at_the_end(stages: int, microbatches: int) -> Rows:
    return _rows(stages, microbatches, [microbatches] * stages)


def _first_device_waits_most(stages: int, microbatches: int) -> Rows:
    return _rows(stages, microbatches, list(range(stages))[::-1])


def _all_wait_alike(stages: int, microbatches: int) -> Rows:
    return _rows(stages, microbatches, [stages - 1] * stages)


def _w_one_too_early(stages: int, microbatches: int) -> Rows:
    return _rows(stages, microbatches, [max(rank - 1, 0) for rank in range(stages)])


def _w_one_too_late(stages: int, microbatches: int) -> Rows:
    return _rows(stages, microbatches, [rank + 1 for rank in range(stages)])


def _h2_as_h1(stages: int, microbatches: int) -> Rows:
    return _rows(stages, microbatches, [2 * rank for rank in range(stages)], twice=2)


ZERO_BUBBLE_H1 = (
    Mistake("weight_gradient_first", _weight_gradient_first, "order"),
    Mistake("weight_gradients_left_out", _weight_gradients_left_out, "order"),
    Mistake("whole_backward_and_w", _whole_backward_and_w, "order"),
    Mistake("backward_not_split", _backward_not_split, "bubble"),
    Mistake("no_w_waits", _no_w_waits, "bubble"),
    Mistake("all_w_at_the_end", _all_w_at_the_end, "bubble"),
    Mistake("first_device_waits_most", _first_device_waits_most, "bubble"),
    Mistake("all_wait_alike", _all_wait_alike, "bubble"),
    Mistake("w_one_too_early", _w_one_too_early, "bubble"),
    Mistake("w_one_too_late", _w_one_too_late, "bubble"),
    Mistake("h2_as_h1", _h2_as_h1, "in_flight"),
)
