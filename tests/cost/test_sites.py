"""What sites average over a line takes what was published, and wins where the formulas say."""

import math

import pytest

from jaxpar.cost.communication import Link
from jaxpar.cost.sites import (
    EVERY_STEP,
    LATENCY_SECONDS,
    WAYS,
    Sites,
    Way,
    averaging,
    fewest_local_steps,
    steps_ratio,
)

HOME = Sites(2, Link(LATENCY_SECONDS, 0.125e9))


def test_two_sites_send_what_they_have() -> None:
    seconds = averaging(10**9, HOME, EVERY_STEP).value
    assert seconds == pytest.approx(2 * 0.05 + 4e9 / 0.125e9)
    assert averaging(10**9, HOME, Way("fp32", 20)).value == pytest.approx(seconds / 20)
    assert averaging(10**9, HOME, Way("int8")).value == pytest.approx(0.1 + (1 + 4 / 256) * 8)


def test_more_sites_send_hardly_more_in_more_messages() -> None:
    many = averaging(10**9, Sites(1000, HOME.line), EVERY_STEP).value
    assert many == pytest.approx(20 * 0.05 + 2 * 999 / 1000 * 4e9 / 0.125e9)


def test_intellect_1_computed_as_much_of_the_time_as_it_reports() -> None:
    """38 minutes of 100 steps; 96% on lines of 1.6 Gb/s, and 83% on 0.32 (Jaghouar et al. 2024)."""
    for gigabits, computing in ((1.6, 0.96), (0.32, 0.83)):
        sites = Sites(14, Link(LATENCY_SECONDS, gigabits * 1e9 / 8))
        step = 38 * 60 / 100
        average = averaging(10**10, sites, Way("int8", 100)).value
        assert step / (step + average) == pytest.approx(computing, abs=0.01)


def test_the_ratio_is_that_of_the_times_of_a_step() -> None:
    assert steps_ratio(5.0, 10**9, HOME, EVERY_STEP) == 1
    plain, rare = (averaging(10**9, HOME, way).value for way in (EVERY_STEP, Way("int8", 10)))
    assert steps_ratio(5.0, 10**9, HOME, Way("int8", 10)) == pytest.approx((5 + plain) / (5 + rare))
    ratios = [steps_ratio(5.0, 10**9, HOME, way) for way in WAYS]
    assert ratios == sorted(ratios)


@pytest.mark.parametrize("needed", [1.0, 1.5, 2.5])
def test_the_fewest_local_steps_take_as_long(needed: float) -> None:
    computing, average = 2.0, 6.0
    steps = fewest_local_steps(computing, average, needed=needed)
    assert (computing + average / steps) * needed == pytest.approx(computing + average)


def test_local_steps_that_need_too_many_never_win() -> None:
    assert fewest_local_steps(2.0, 6.0, needed=4.0) == math.inf
    assert fewest_local_steps(2.0, 6.0, needed=5.0) == math.inf


def test_what_is_not_above_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="averaging: sites is 0; use a number above 0"):
        averaging(10**9, Sites(0, HOME.line), EVERY_STEP)
    with pytest.raises(ValueError, match="needed is 0; use a number above 0"):
        fewest_local_steps(1.0, 1.0, needed=0)
