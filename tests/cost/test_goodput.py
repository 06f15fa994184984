"""Checkpoint intervals and goodput, against the figures of Daly's paper and of Llama 3."""

import math

import pytest

from jaxpar.cost.goodput import DEVICE_MTBF_HOURS, HOUR, Failures, failures, young_daly_interval

MINUTE = 60


def test_interval_is_the_root_of_twice_the_product() -> None:
    assert young_daly_interval(5 * MINUTE, 24 * HOUR) == 120 * MINUTE
    assert young_daly_interval(0, HOUR) == 0


@pytest.mark.parametrize("times", [(-1, HOUR), (1, -HOUR), (math.nan, HOUR), (1, math.nan)])
def test_a_time_is_not_negative(times: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="in seconds"):
        young_daly_interval(*times)


@pytest.mark.parametrize(("mtbf_minutes", "printed"), [(24 * 60, 117), (6 * 60, 57)])
def test_the_best_interval_is_that_of_daly_s_figures(mtbf_minutes: int, printed: int) -> None:
    """Figures 3 and 4: a dump of 5 and a restart of 10 minutes; the model's optimum is printed."""
    run = Failures(mtbf_minutes * MINUTE, 5 * MINUTE, 10 * MINUTE)
    best = max(range(MINUTE, 4 * int(HOUR)), key=run.goodput_at)
    assert round(best / MINUTE) == printed
    # Young's interval, a first approximation, loses next to nothing.
    assert run.goodput_at(best) - run.goodput < 1e-3


def test_goodput_of_simulated_failures() -> None:
    """The formula against work and failures drawn at random, time by time."""
    import random

    draw = random.Random(1)
    run = Failures(100.0, 2.0, 5.0)
    interval, done, clock, fails = 20.0, 0.0, 0.0, draw.expovariate(1 / 100)
    while done < 400_000:
        ends = clock + interval + 2
        if fails >= ends:
            done, clock = done + interval, ends
            continue
        clock = fails
        while True:  # a restart may fail too
            fails = clock + draw.expovariate(1 / 100)
            if fails >= clock + 5:
                clock += 5
                break
            clock = fails
    assert done / clock == pytest.approx(run.goodput_at(interval), rel=0.01)


def test_llama_3_on_16384_devices() -> None:
    """One interruption in 3 hours, and more than 90% of the time effective (section 3.3.4)."""
    run = failures(14 * 405.85e9, 16_384, DEVICE_MTBF_HOURS)
    assert run.mtbf_seconds == pytest.approx(54 * 24 * HOUR / 419)
    assert 0.9 < run.goodput < 0.95


def test_goodput_falls_with_devices_and_never_overflows() -> None:
    runs = [failures(1e12, devices, 1000.0) for devices in (1, 8, 64, 4096, 1 << 20)]
    goodputs = [run.goodput for run in runs]
    assert goodputs == sorted(goodputs, reverse=True)
    assert 0 <= goodputs[-1] < goodputs[0] < 1


@pytest.mark.parametrize("hours", [0, -1, math.nan, math.inf, 1e-300, 1e308])
def test_failures_are_rare_but_not_never(hours: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        failures(1e9, 8, hours)
