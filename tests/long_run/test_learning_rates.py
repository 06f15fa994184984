"""Learning rates rise to the peak, fall to the end, and stay there; numbers that cannot be."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.long_run.learning_rates import cosine_schedule, wsd_schedule

LENGTHS = st.integers(0, 30)


@given(LENGTHS, LENGTHS, LENGTHS, st.floats(0, 1))
def test_wsd_rises_stays_and_falls(warmup: int, stable: int, decay: int, final: float) -> None:
    how = {"peak": 1.0, "warmup": warmup, "stable": stable, "decay": decay, "final": final}
    rates = [wsd_schedule(step, **how) for step in range(warmup + stable + decay + 3)]
    rise, rest = rates[:warmup], rates[warmup:]
    assert rise == pytest.approx([(step + 1) / warmup for step in range(warmup)])
    assert rest[:stable] == [1.0] * stable
    falls = [before - after for before, after in itertools.pairwise([1.0, *rest[stable:-3]])]
    assert falls == pytest.approx([(1 - final) / decay for _ in falls] if decay else [])
    assert rest[-3:] == pytest.approx([final] * 3)


def test_a_cosine_is_half_way_down_in_the_middle() -> None:
    rates = [cosine_schedule(s, peak=2.0, warmup=4, decay=8, final=1.0) for s in range(14)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[7] == pytest.approx(1.5)
    assert rates[11:] == [1.0] * 3
    assert rates[3:] == sorted(rates[3:], reverse=True)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"warmup": -1}, "numbers of steps .* give none below 0"),
        ({"decay": -1}, "numbers of steps"),
        ({"peak": 0.0}, ".* a peak above 0"),
        ({"final": 2.0}, "peak 1 and final 2"),
        ({"final": -0.5}, ".* a final rate from 0 to the peak"),
    ],
)
def test_numbers_that_cannot_be_are_refused(wrong: dict, message: str) -> None:
    how = {"peak": 1.0, "warmup": 1, "decay": 1, "final": 0.0} | wrong
    with pytest.raises(ValueError, match=f"cosine_schedule: {message}"):
        cosine_schedule(0, **how)
    with pytest.raises(ValueError, match=f"wsd_schedule: {message}"):
        wsd_schedule(0, stable=1, **how)
