"""Examples are sharded, split and padded for all sizes, and wrong sizes have clear errors."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.contracts.data_parallel.shard_indices import CONTRACT
from jaxpar.parallel.sampler import pad_batch, seeded_split, shard_indices
from tests.comm_lines import evaluate, memory

SEEDS = st.integers(0, 2**40)


@given(st.integers(1, 60), st.integers(1, 20), SEEDS, SEEDS)
def test_all_ranks_together_keep_the_contract(n: int, world_size: int, epoch: int, seed: int):
    calls = [
        ((n,), {"world_size": world_size, "rank": rank, "epoch": epoch, "seed": seed})
        for rank in range(world_size)
    ]
    results = [shard_indices(*args, **kwargs) for args, kwargs in calls]
    assert CONTRACT.complaint
    assert CONTRACT.complaint(calls, results) is None


@pytest.mark.parametrize(
    ("num_examples", "rank", "message"),
    [
        (0, 0, "0 examples to deal out"),
        (5, 4, "rank 4 of 4 devices; use a rank from 0 to 3"),
        (5, -1, "rank -1 of 4"),
    ],
)
def test_ranks_that_are_not_there_are_refused(num_examples: int, rank: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"shard_indices: {message}"):
        shard_indices(num_examples, world_size=4, rank=rank, epoch=0, seed=0)


@given(st.integers(10, 200), SEEDS)
def test_each_example_is_in_one_part(num_examples: int, seed: int) -> None:
    parts = seeded_split(num_examples, [0.7, 0.2, 0.1], seed=seed)
    assert sorted(itertools.chain(*parts)) == list(range(num_examples))
    for part, fraction in zip(parts, [0.7, 0.2, 0.1], strict=True):
        assert abs(len(part) - fraction * num_examples) <= 1
    assert parts == seeded_split(num_examples, [0.7, 0.2, 0.1], seed=seed)


def test_seeds_split_differently() -> None:
    assert seeded_split(50, [0.5, 0.5], seed=1) != seeded_split(50, [0.5, 0.5], seed=2)


@pytest.mark.parametrize(
    ("num_examples", "fractions", "message"),
    [
        (10, [0.5, 0.4], "add up to 0.9"),
        (10, [1.5, -0.5], "give positive fractions"),
        (10, [], "add up to 0"),
        (3, [0.9, 0.1], r"3 examples make parts of \[3, 0\]"),
    ],
)
def test_fractions_that_are_none_are_refused(
    num_examples: int, fractions: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=f"seeded_split: .*{message}"):
        seeded_split(num_examples, fractions, seed=0)


@pytest.mark.parametrize("b", [0, 1, 4])
def test_a_batch_is_padded_with_zeros(b: int) -> None:
    batch = {"x": np.ones((b, 3), np.float32), "y": np.ones(b, np.uint8)}
    padded, mask = pad_batch(batch, 4)
    assert mask.tolist() == [True] * b + [False] * (4 - b)
    assert padded["x"].shape == (4, 3)
    for name, leaf in padded.items():
        assert leaf.dtype == batch[name].dtype
        assert np.array_equal(leaf[mask], batch[name])
        assert not leaf[~mask].any()


def test_they_hold_what_they_say() -> None:
    batch = {"x": np.ones((3, 5)), "y": np.ones(3)}
    padded, mask = pad_batch(batch, 4)
    held = {
        pad_batch: (sum(leaf.size for leaf in padded.values()) + mask.size),
        shard_indices: len(shard_indices(10, world_size=4, rank=0, epoch=0, seed=0)),
        seeded_split: sum(len(part) for part in seeded_split(10, [0.5, 0.5], seed=0)),
    }
    names = {"num_examples": 10, "world_size": 4, "batch": 18, "b": 3, "size": 4}
    for function, size in held.items():
        assert evaluate(memory(function), names) == size


@pytest.mark.parametrize("counts", [(5, 5), (2, 3), ()])
def test_batches_that_cannot_be_padded_are_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"pad_batch: leaves with .* examples to pad to 4"):
        pad_batch([np.zeros(count) for count in counts], 4)
