"""What is pruned is small, and two of every four neighbours are left."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.prune import prune_2_4, prune_smallest
from tests.arrays import random


@pytest.mark.parametrize("fraction", [0, 0.25, 0.5, 1])
def test_the_smallest_become_zero(fraction: float) -> None:
    w = random(6, 8)
    pruned = np.asarray(prune_smallest(jnp.asarray(w), fraction=fraction))
    kept = pruned != 0
    assert kept.sum() == round((1 - fraction) * w.size)
    assert np.array_equal(pruned[kept], w[kept])
    assert not kept.any() or kept.all() or np.abs(w[kept]).min() > np.abs(w[~kept]).max()


@pytest.mark.parametrize("fraction", [-0.1, 1.1])
def test_a_fraction_is_from_0_to_1(fraction: float) -> None:
    with pytest.raises(ValueError, match=f"fraction is {fraction}"):
        prune_smallest(jnp.ones(4), fraction=fraction)


def test_two_of_every_four_neighbours_in_a_column_are_kept() -> None:
    w = random(16, 6)
    pruned = np.asarray(prune_2_4(w)).reshape(4, 4, 6)
    fours = w.reshape(4, 4, 6)
    for group in range(4):
        for column in range(6):
            largest = np.argsort(-np.abs(fours[group, :, column]))[:2]
            expected = np.zeros(4, np.float32)
            expected[largest] = fours[group, largest, column]
            np.testing.assert_array_equal(pruned[group, :, column], expected)


def test_the_first_of_equal_magnitudes_are_kept() -> None:
    w = jnp.array([[1.0, 0.0, -2], [-1, 0, 2], [1, 0, 2], [1, 5, -2]])
    expected = [[1, 0, -2], [-1, 0, 2], [0, 0, 0], [0, 5, 0]]
    np.testing.assert_array_equal(prune_2_4(w), expected)


def test_what_is_kept_has_the_gradient() -> None:
    w = random(8, 3)
    gradient = jax.grad(lambda w: jnp.sum(3 * prune_2_4(w)))(w)
    np.testing.assert_array_equal(gradient, 3 * (np.asarray(prune_2_4(w)) != 0))


@pytest.mark.parametrize("rows", [2, 10])
def test_rows_that_are_no_multiple_of_four_are_refused(rows: int) -> None:
    with pytest.raises(ValueError, match=f"w has {rows} rows"):
        prune_2_4(jnp.ones((rows, 3)))
