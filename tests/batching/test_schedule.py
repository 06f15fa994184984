"""Each request is computed to its end, within budget and slots, and as its turn comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.batching.schedule import continuous_schedule


def test_by_hand() -> None:
    requests = [(0, 5, 3), (0, 9, 2), (1, 1, 2), (7, 3, 1), (0, 2, 2)]
    assert continuous_schedule(requests, slots=2, budget=4) == [
        [(0, 4)],
        [(0, 1), (1, 3)],
        [(0, 1), (1, 3)],
        [(0, 1), (1, 3)],
        [(1, 1), (4, 2)],
        [(4, 1), (2, 1)],
        [(2, 1)],
        [(3, 3)],
    ]


def test_steps_without_work_are_rows_without_pairs() -> None:
    assert continuous_schedule([(2, 1, 1)], slots=1, budget=1) == [[], [], [(0, 1)]]
    assert continuous_schedule([], slots=1, budget=1) == []


STREAMS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30), st.integers(1, 9)), max_size=9)


@given(STREAMS, st.integers(1, 5), st.integers(0, 9))
def test_all_is_computed_within_limits(
    requests: list[tuple[int, int, int]], slots: int, spare: int
) -> None:
    budget = slots + spare
    rows = continuous_schedule(requests, slots=slots, budget=budget)
    for number, (arrival, prompt, output) in enumerate(requests):
        steps = [(step, dict(row)[number]) for step, row in enumerate(rows) if number in dict(row)]
        assert sum(count for _, count in steps) == prompt + output - 1
        assert steps[0][0] >= arrival
        assert all(count == 1 for _, count in steps[len(steps) - output + 1 :])
    for row in rows:
        assert sum(count for _, count in row) <= budget
        assert len(row) == len(dict(row)) <= slots


@pytest.mark.parametrize(
    ("requests", "slots", "budget", "says"),
    [
        ([(0, 3, 2)], 0, 4, "slots is 0"),
        ([(0, 3, 2)], 3, 2, "a budget of 2 tokens for 3 slots"),
        ([(-1, 3, 2)], 1, 4, "arrives in step -1"),
        ([(0, 0, 2)], 1, 4, "prompt is 0"),
        ([(0, 3, 0)], 1, 4, "output is 0"),
    ],
)
def test_what_cannot_be_is_refused(
    requests: list[tuple[int, int, int]], slots: int, budget: int, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        continuous_schedule(requests, slots=slots, budget=budget)
