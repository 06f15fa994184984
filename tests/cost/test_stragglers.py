"""Simulated waiting agrees with what can be computed without a simulation."""

import math

import numpy as np
import pytest

from jaxpar.cost.communication import Link, wire_bytes
from jaxpar.cost.stragglers import LATE, LATE_SECONDS, SPREAD, TAIL, Fleet, step_seconds

LINE = Link(latency_seconds=50e-3, bytes_per_second=125e6)


def test_all_of_100_are_in_time_as_often_as_measured() -> None:
    """Chen et al. 2016: in 30% of the steps; all but two of them, in 80%."""
    assert pytest.approx(1 - 0.3 ** (1 / 100)) == LATE
    in_time = sum(math.comb(100, k) * LATE**k * (1 - LATE) ** (100 - k) for k in range(3))
    assert 0.8 < in_time < 0.9


def test_lines_are_as_different_as_the_averages_of_intellect_1() -> None:
    """It computed for 38 minutes, and then averaged 10 billion numbers on 14 nodes, in 8 bits."""
    minutes = [38 * (1 / part - 1) for part in (0.83, 0.96)]
    assert pytest.approx(SPREAD) == minutes[0] / minutes[1]
    sent = wire_bytes("all_reduce", 1e10 * (1 + 4 / 256), 14)
    gigabits = [8 * sent / (60 * each) / 1e9 for each in minutes]
    assert 0.1 < gigabits[0] < gigabits[1] < 10


def test_workers_that_are_never_late_wait_for_the_slowest_line() -> None:
    fleet = Fleet(64, LINE, spread=1.0, late=0.0)
    expected = 1 + wire_bytes("all_reduce", 1e9, 64) / 125e6 + 12 * 50e-3
    assert step_seconds(fleet, 1e9) == pytest.approx(expected)
    rounds = step_seconds(fleet, 1e9, local_steps=10)
    assert rounds == pytest.approx(1 + (expected - 1) / 10)
    slowest = step_seconds(Fleet(4096, LINE, spread=4.0, late=0.0), 1e9)
    assert slowest == pytest.approx(1 + 2 * wire_bytes("all_reduce", 1e9, 4096) / 125e6 + 1.2, 0.01)


def test_one_worker_is_as_late_as_it_is_on_average() -> None:
    """A Pareto tail of exponent a has the mean a/(a-1) of its least value."""
    mean_late = LATE_SECONDS * TAIL / (TAIL - 1)
    found = step_seconds(Fleet(1, LINE, late=0.5), 0, rounds=400_000)
    assert found == pytest.approx(0.5 + 0.5 * mean_late, rel=0.05)


def test_whoever_leaves_out_the_last_does_not_wait_for_late_ones() -> None:
    fleet = Fleet(4096, LINE, spread=1.0)
    every, most = (step_seconds(fleet, 0, waits_for=part) for part in (1.0, 0.98))
    assert most == pytest.approx(1 + 24 * 50e-3)
    assert every > 20 * most


def test_the_time_of_more_workers_grows() -> None:
    times = [step_seconds(Fleet(n, LINE), 4e9) for n in (64, 1024, 10_000)]
    assert np.all(np.diff(times) > 0)


def test_parts_above_one_and_no_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="waits_for is 98; it is a part of the workers; use 1"):
        step_seconds(Fleet(8, LINE), 1e9, waits_for=98)
    with pytest.raises(ValueError, match="workers is 0; use a number above 0"):
        step_seconds(Fleet(0, LINE), 1e9)
