"""Percentiles, throughput and goodput of small runs, by hand."""

import pytest

from jaxpar.serve.measures import Objectives, Outcome, summary


def test_the_numbers_of_a_run() -> None:
    outcomes = [
        Outcome(arrival=1.0, times=(1.5, 1.6, 1.8), tokens=3, end=2.0),
        Outcome(arrival=2.0, times=(5.0,), tokens=1, end=5.0),
        Outcome(arrival=3.0, times=(3.1, 3.9), tokens=2, end=11.0, failed="left"),
        Outcome(arrival=4.0, times=(), tokens=0, end=4.0, failed="HTTP 429"),
    ]
    found = summary(outcomes, Objectives(first_token=1.0, gap=0.16))
    assert (found.requests, found.well, found.seconds) == (4, 2, 10.0)
    assert found.first_token == pytest.approx((1.75, 2.75, 2.975))
    assert found.gap == pytest.approx((0.15, 0.19, 0.199))
    assert found.whole == pytest.approx((2.0, 2.8, 2.98))
    assert found.tokens_per_second == pytest.approx(0.4)
    assert found.requests_per_second == pytest.approx(0.2)
    assert found.good_requests_per_second == pytest.approx(0.1)
    assert found.failures == {"left": 1, "HTTP 429": 1}
    assert found.failed
    assert found.to_dict()["gap_seconds"]["p50"] == pytest.approx(0.15)
    assert any("1 HTTP 429, 1 left" in line for line in found.lines())


def test_a_mean_gap_above_the_limit_is_not_good() -> None:
    one = Outcome(arrival=0.0, times=(0.1, 0.2, 0.6), tokens=3, end=0.6)
    assert one.within(Objectives(gap=0.2501))
    assert not one.within(Objectives(gap=0.2499))
    assert not one.within(Objectives(first_token=0.09))


def test_a_run_in_which_nothing_ended_well_has_no_percentiles() -> None:
    found = summary([Outcome(0.0, (), 0, 1.0, "left")], Objectives())
    assert (found.first_token, found.gap, found.tokens_per_second) == ((), (), 0.0)
    assert not found.failed
    assert found.lines()


def test_no_request_is_no_run() -> None:
    with pytest.raises(ValueError, match="0 requests"):
        summary([], Objectives())
