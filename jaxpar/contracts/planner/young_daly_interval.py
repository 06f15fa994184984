"""How often to save a checkpoint, if devices fail now and then."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong, wrong_result
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
    task="return the seconds of work between checkpoints at which least time is lost (Young and "
    "Daly)",
    reference=young_daly_interval,
    oracle=young_daly_interval,
    values=_intervals,
    hints=(
        "Write down the fraction of time that is lost, C/t + t/(2M). For which t is its derivative "
        "zero?",
        "The derivative is -C/t^2 + 1/(2M). Set it to zero and solve for t.",
        "math.sqrt(2 * checkpoint_seconds * mtbf_seconds), after ValueError where one of the two "
        "is negative.",
    ),
    minimal="At this interval the checkpoints cost as much time as the work that failures destroy.",
    harder="Daly's complete function has restarts, and failures during checkpoints, too: lesson 19 "
    "prints it. Find its best interval by trying many; when does the square root miss it?",
)


_mistake = partial(wrong_result, young_daly_interval)

interval_without_2 = _mistake(
    "This is sqrt(C M); a failure loses half an interval on average, which puts a 2 under the "
    "root.",
    lambda right, call: math.sqrt(call.checkpoint_seconds * call.mtbf_seconds),
)
interval_2_outside = _mistake(
    "This is 2 sqrt(C M); the 2 belongs under the root.",
    lambda right, call: right * math.sqrt(2),
)
interval_without_root = _mistake(
    "The square root is missing.",
    lambda right, call: 2 * call.checkpoint_seconds * call.mtbf_seconds,
)
interval_of_a_quotient = _mistake(
    "You divide by the time of a checkpoint; longer checkpoints should be rarer, so multiply by "
    "it.",
    lambda right, call: right / call.checkpoint_seconds if call.checkpoint_seconds else 0.0,
)
interval_of_a_sum = _mistake(
    "You add the two times; multiply them.",
    lambda right, call: math.sqrt(2 * (call.checkpoint_seconds + call.mtbf_seconds)),
)
interval_of_failures = _mistake(
    "This is the time between failures; with checkpoints that rare, half of all work is lost.",
    lambda right, call: call.mtbf_seconds,
)
interval_and_checkpoint = _mistake(
    "You add the checkpoint itself; return the time of work between two of them.",
    lambda right, call: right + call.checkpoint_seconds,
)
interval_less_checkpoint = _mistake(
    "You subtract the checkpoint, as one of Daly's forms does for the time from start to start; "
    "return the first order, the root alone.",
    lambda right, call: right - call.checkpoint_seconds,
)
interval_in_minutes = _mistake(
    "The result is in minutes; return seconds.",
    lambda right, call: right / 60,
)
interval_in_hours = _mistake(
    "The result is in hours; return seconds.",
    lambda right, call: right / 3600,
)
interval_mtbf_in_hours = _mistake(
    "The result is 60 times too large, as if mtbf_seconds were hours; it is in seconds already.",
    lambda right, call: right * 60,
)
interval_in_whole_seconds = _mistake(
    "You round the result to whole seconds; return it as it is.",
    lambda right, call: round(right),
)


@wrong("values")
def interval_of_anything(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """Raise ValueError where a time is negative."""
    return math.sqrt(abs(2 * checkpoint_seconds * mtbf_seconds))


@wrong("values")
def interval_zero_refused(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """A time may be zero, and then the interval is 0; refuse negative times only."""
    if min(checkpoint_seconds, mtbf_seconds) <= 0:
        raise ValueError("not positive")
    return young_daly_interval(checkpoint_seconds, mtbf_seconds)
