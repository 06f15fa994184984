"""How often to save a checkpoint, if devices fail now and then."""

from __future__ import annotations

import math

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread
from jaxpar.cost.goodput import young_daly_interval

# A checkpoint, and what is between failures: Llama 3's 419 in 54 days; a machine at home; Daly's
# 5 minutes and 24 hours.
_RUNS = ((34.7, 54 * 86_400 / 419), (120, 30 * 86_400), (300, 86_400))


def _intervals(rng: np.random.Generator) -> list[Call]:
    """Round numbers, published runs, any times, then what is refused."""
    calls = [(50, 10_000), (30, 54_000), (0, 3600), (30, 0), (0, 0), (90, 20), *_RUNS]
    # Below a second and beyond a year, checkpoints longer than what is between failures, a root
    # that is a whole number: no limit is right, neither below nor above.
    calls += [(0.001, 1), (1e-9, 1e-6), (3600.0, 1e9), (1e6, 1e12), (86_400, 3600), (2e9, 4e-9)]
    calls += [(100, 50), (50, 100), (100, 200), (1, 0.5), (0.0, 0.0)]
    spreads = log_spread(rng, 0.01, 1e5, 8), log_spread(rng, 0.1, 1e5, 8)
    for checkpoint, ratio in zip(*spreads, strict=True):
        calls.append((checkpoint, checkpoint * ratio))
    refused = [(-50, 10_000), (50, -10_000), (-50, -10_000), (0, -3600), (-30, 0), (-0.5, 3600)]
    refused += [(30, -0.5), (-1e-9, 3600), (30, -1e-9), (-1e-9, -1e-9), (-20, 90), (-90, 20)]
    refused += [(math.nan, 10_000), (50, math.nan), (math.nan, math.nan), (math.nan, 0)]
    refused += [(0, math.nan), (-50, math.nan), (math.nan, -10_000)]
    return [(call, {}) for call in [*calls, *refused]]


CONTRACT = Contract(
    kind="value",
    task="return the seconds between checkpoints at which least time is lost (Young and Daly)",
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


@wrong("values")
def interval_without_2(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """This is sqrt(C M); a failure loses half an interval on average, which puts a 2 under the
    root."""
    young_daly_interval(checkpoint_seconds, mtbf_seconds)  # raises where it must
    return math.sqrt(checkpoint_seconds * mtbf_seconds)


@wrong("values")
def interval_2_outside(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """This is 2 sqrt(C M); the 2 belongs under the root."""
    return young_daly_interval(checkpoint_seconds, mtbf_seconds) * math.sqrt(2)


@wrong("values")
def interval_without_root(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """The square root is missing."""
    young_daly_interval(checkpoint_seconds, mtbf_seconds)  # raises where it must
    return 2 * checkpoint_seconds * mtbf_seconds


@wrong("values")
def interval_of_a_quotient(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """You divide by the time of a checkpoint; longer checkpoints should be rarer, so multiply by
    it."""
    interval = young_daly_interval(checkpoint_seconds, mtbf_seconds)
    return interval / checkpoint_seconds if checkpoint_seconds else 0.0


@wrong("values")
def interval_of_a_sum(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """You add the two times; multiply them."""
    young_daly_interval(checkpoint_seconds, mtbf_seconds)  # raises where it must
    return math.sqrt(2 * (checkpoint_seconds + mtbf_seconds))


@wrong("values")
def interval_of_failures(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """This is the time between failures; with checkpoints that rare, half of all work is lost."""
    young_daly_interval(checkpoint_seconds, mtbf_seconds)  # raises where it must
    return mtbf_seconds


@wrong("values")
def interval_and_checkpoint(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """You add the checkpoint itself; return the time of work between two of them."""
    return young_daly_interval(checkpoint_seconds, mtbf_seconds) + checkpoint_seconds


@wrong("values")
def interval_less_checkpoint(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """You subtract the checkpoint, as one of Daly's forms does for the time from start to start;
    return the first order, the root alone."""
    return young_daly_interval(checkpoint_seconds, mtbf_seconds) - checkpoint_seconds


@wrong("values")
def interval_in_minutes(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """The result is in minutes; return seconds."""
    return young_daly_interval(checkpoint_seconds, mtbf_seconds) / 60


@wrong("values")
def interval_in_hours(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """The result is in hours; return seconds."""
    return young_daly_interval(checkpoint_seconds, mtbf_seconds) / 3600


@wrong("values")
def interval_mtbf_in_hours(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """The result is 60 times too large, as if mtbf_seconds were hours; it is in seconds already."""
    return young_daly_interval(checkpoint_seconds, mtbf_seconds) * 60


@wrong("values")
def interval_in_whole_seconds(checkpoint_seconds: float, mtbf_seconds: float) -> int:
    """You round the result to whole seconds; return it as it is."""
    return round(young_daly_interval(checkpoint_seconds, mtbf_seconds))


@wrong("values")
def interval_at_most_the_mtbf(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """You cut the interval off at the time between failures; return the root alone, however long
    the checkpoint is."""
    return min(young_daly_interval(checkpoint_seconds, mtbf_seconds), mtbf_seconds)


@wrong("values")
def interval_at_least_the_checkpoint(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """You make the interval at least as long as the checkpoint; return the root alone, however
    short it is."""
    return max(young_daly_interval(checkpoint_seconds, mtbf_seconds), checkpoint_seconds)


@wrong("values")
def interval_refused_by_the_product(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """Look at each time by itself: a product of two negative times is positive, and that of a
    negative one with 0 is 0."""
    if checkpoint_seconds * mtbf_seconds < 0:
        raise ValueError("a negative time")
    return math.sqrt(2 * checkpoint_seconds * mtbf_seconds)


@wrong("values")
def interval_of_no_number(checkpoint_seconds: float, mtbf_seconds: float) -> float:
    """Raise ValueError where a time is NaN: no comparison with NaN is true, so ask whether a time
    is 0 or more, not whether it is negative."""
    if checkpoint_seconds < 0 or mtbf_seconds < 0:
        raise ValueError("a negative time")
    return math.sqrt(2 * checkpoint_seconds * mtbf_seconds)


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
