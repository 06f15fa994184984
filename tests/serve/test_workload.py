"""Arrivals and lengths are as they were asked for, and repeat."""

import numpy as np
import pytest

from jaxpar.serve.workload import Load, plan


def test_lengths_and_rates() -> None:
    load = Load(rate=4.0, requests=4000, prompt=(3, 9), output=(1, 5), leave=0.25, seed=1)
    planned = plan(load)
    arrivals = np.array([one.arrival for one in planned])
    gaps = np.diff(arrivals)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(0.25, rel=0.06)
    assert gaps.std() == pytest.approx(0.25, rel=0.1)  # as that of an exponential one
    assert {one.prompt for one in planned} == set(range(3, 10))
    assert {one.output for one in planned} == set(range(1, 6))
    leaving = [one for one in planned if one.leaves_after is not None]
    assert len(leaving) == pytest.approx(1000, rel=0.1)
    assert all(0 <= one.leaves_after < one.output for one in leaving)


def test_the_same_seed_gives_the_same_requests() -> None:
    assert plan(Load(seed=3)) == plan(Load(seed=3))
    assert plan(Load(seed=3)) != plan(Load(seed=4))


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": float("nan")}, "rate"),
        ({"requests": 0}, "requests"),
        ({"prompt": (0, 3)}, "prompt 0:3"),
        ({"output": (5, 3)}, "output 5:3"),
        ({"leave": 1.5}, "leave"),
    ],
)
def test_bad_numbers_are_refused(how: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Load(**how)
