"""Exercise young_daly_interval: how often to save, if devices fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.planner.common import scaled
from jaxpar.cost.goodput import young_daly_interval

# A checkpoint, and what is between failures: Llama 3's 419 in 54 days; a machine at home; Daly's
# 5 minutes and 24 hours.
_RUNS = ((34.7, 54 * 86_400 / 419), (120, 30 * 86_400), (300, 86_400))


def _intervals(rng: np.random.Generator) -> list[Call]:
    """Round numbers, published runs, any times, then what is refused."""
    calls = [(50, 10_000), (30, 54_000), (0, 3600), (30, 0), (0, 0), (90, 20), *_RUNS]
    for _ in range(8):
        checkpoint = float(rng.uniform(1, 1000))
        calls.append((checkpoint, checkpoint * float(rng.uniform(5, 5000))))
    return [(call, {}) for call in [*calls, (-50, 10_000), (50, -10_000), (-50, -10_000)]]


CONTRACT = Contract(
    kind="value",
    task="return the seconds of work between checkpoints that lose least, as Young and Daly do",
    reference=young_daly_interval,
    oracle=young_daly_interval,
    values=_intervals,
    hints=(
        "Write down the share of time that is lost, C/t + t/(2M). Where is its slope over t zero?",
        "The slope is -C/t^2 + 1/(2M). Solve for t.",
        "math.sqrt(2 * checkpoint_seconds * mtbf_seconds), after ValueError where one of the two "
        "is negative.",
    ),
    minimal="There the checkpoints cost as much as the work that failures destroy.",
    harder="Daly's complete function has restarts, and failures during checkpoints, too: lesson 19 "
    "prints it. Find its best interval by trying many; when does the square root miss it?",
)


def _interval(formula: Callable[[float, float], float]) -> Callable:
    """A formula of the checkpoint's time and the time between failures."""

    def wrong(checkpoint: float, mtbf: float) -> float:
        young_daly_interval(checkpoint, mtbf)  # raises where it must
        return formula(checkpoint, mtbf)

    return wrong


@wrong("values")
def interval_without_2(*args: Any, **how: Any) -> Any:
    """This is sqrt(C M); a failure loses half an interval on average, which puts a 2 under the
    root."""
    return (_interval(lambda c, m: math.sqrt(c * m)))(*args, **how)


@wrong("values")
def interval_2_outside(*args: Any, **how: Any) -> Any:
    """This is 2 sqrt(C M); the 2 belongs under the root."""
    return (_interval(lambda c, m: 2 * math.sqrt(c * m)))(*args, **how)


@wrong("values")
def interval_without_root(*args: Any, **how: Any) -> Any:
    """The root is missing."""
    return (_interval(lambda c, m: 2 * c * m))(*args, **how)


@wrong("values")
def interval_of_a_quotient(*args: Any, **how: Any) -> Any:
    """The time of a checkpoint divides; longer checkpoints should be rarer, so multiply by it."""
    return (_interval(lambda c, m: math.sqrt(2 * m / c) if c else 0.0))(*args, **how)


@wrong("values")
def interval_of_a_sum(*args: Any, **how: Any) -> Any:
    """The two times are added; multiply them."""
    return (_interval(lambda c, m: math.sqrt(2 * (c + m))))(*args, **how)


@wrong("values")
def interval_of_failures(*args: Any, **how: Any) -> Any:
    """This is the time between failures; with a checkpoint that rare, half of all work is lost."""
    return (_interval(lambda _, m: m))(*args, **how)


@wrong("values")
def interval_and_checkpoint(*args: Any, **how: Any) -> Any:
    """The checkpoint itself is added; return the time of work between two of them."""
    return (_interval(lambda c, m: math.sqrt(2 * c * m) + c))(*args, **how)


@wrong("values")
def interval_less_checkpoint(*args: Any, **how: Any) -> Any:
    """The checkpoint is taken off, as for the time from start to start in one of Daly's forms;
    return the first order, the root alone."""
    return (_interval(lambda c, m: math.sqrt(2 * c * m) - c))(*args, **how)


@wrong("values")
def interval_in_minutes(*args: Any, **how: Any) -> Any:
    """The result is in minutes; return seconds."""
    return (scaled(young_daly_interval, 1 / 60))(*args, **how)


@wrong("values")
def interval_in_hours(*args: Any, **how: Any) -> Any:
    """The result is in hours; return seconds."""
    return (scaled(young_daly_interval, 1 / 3600))(*args, **how)


@wrong("values")
def interval_mtbf_in_hours(*args: Any, **how: Any) -> Any:
    """The result is 60 times too large, as if mtbf_seconds were hours; it is in seconds already."""
    return (scaled(young_daly_interval, 60))(*args, **how)


@wrong("values")
def interval_in_whole_seconds(checkpoint: float, mtbf: float) -> int:
    """The result is rounded to seconds; return it as it is."""
    return round(young_daly_interval(checkpoint, mtbf))


@wrong("values")
def interval_of_anything(checkpoint: float, mtbf: float) -> float:
    """A negative time must raise ValueError."""
    return math.sqrt(abs(2 * checkpoint * mtbf))


@wrong("values")
def interval_zero_refused(checkpoint: float, mtbf: float) -> float:
    """Zero is a time, too: the interval is 0 then; refuse negative times only."""
    if min(checkpoint, mtbf) <= 0:
        raise ValueError("not positive")
    return young_daly_interval(checkpoint, mtbf)
