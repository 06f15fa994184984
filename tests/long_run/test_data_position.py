"""A run that goes on with another batch, or on other devices, takes the examples that are next."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.long_run.data_position import epoch_order, resume_indices

SEEDS = st.integers(0, 2**40)


def stream(examples: int, seed: int, count: int) -> list[int]:
    epochs = (epoch_order(examples, epoch=epoch, seed=seed) for epoch in itertools.count())
    return list(itertools.islice(itertools.chain.from_iterable(epochs), count))


@given(st.integers(1, 12), SEEDS, st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5))))
def test_batches_of_any_size_follow_each_other(
    examples: int, seed: int, parts: list[tuple[int, int]]
) -> None:
    taken: list[int] = []
    for world_size, of_each in parts:
        how = {"examples": examples, "batch": world_size * of_each, "seed": seed}
        consumed = len(taken)
        for rank in range(world_size):
            taken += resume_indices(consumed, **how, world_size=world_size, rank=rank)
    assert taken == stream(examples, seed, len(taken))


def test_each_epoch_has_each_example_once_in_an_order_of_its_own() -> None:
    first, second = (epoch_order(20, epoch=epoch, seed=0).tolist() for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second != epoch_order(20, epoch=1, seed=1).tolist()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"consumed": -1}, "-1 consumed"),
        ({"examples": 0}, "of 0 examples"),
        ({"batch": 0}, "batches of 0"),
        ({"rank": 2}, "rank 2 of 2 devices; use a rank from 0 to 1"),
        ({"batch": 5}, "a batch of 5 for 2 devices; use a multiple of 2"),
    ],
)
def test_numbers_that_cannot_be_are_refused(wrong: dict, message: str) -> None:
    how = {"consumed": 3, "examples": 10, "batch": 4, "world_size": 2, "rank": 0, "seed": 0}
    with pytest.raises(ValueError, match=f"resume_indices: .*{message}"):
        resume_indices(**how | wrong)
