"""How inputs are drawn."""

import numpy as np
import pytest

from jaxpar.contracts.case import ArraySpec
from jaxpar.grading.oracle import _draw


@pytest.mark.parametrize("seed", range(5))
def test_padding_follows_the_real_rows(seed: int) -> None:
    flags = _draw(ArraySpec((6,), "b", "bool", draw="padded"), np.random.default_rng(seed))
    mask = _draw(ArraySpec((6, 3), "b t", "bool", draw="padded"), np.random.default_rng(seed))
    assert (flags.dtype, mask.dtype) == (bool, bool)
    assert 1 <= flags.sum() <= 2
    for real in (flags, mask.ravel()):
        assert list(real) == sorted(real, reverse=True)
    np.testing.assert_array_equal(mask.all(axis=1), flags)
    assert mask.any(axis=1).sum() == flags.sum() + 1


def test_ties_and_what_is_nearly_one() -> None:
    drawn = _draw(ArraySpec((60,), "b", draw="ties"), np.random.default_rng(0))
    values = np.unique(drawn)
    assert (drawn.dtype, len(values)) == (np.float32, 3)
    assert np.nextafter(values[1], np.float32(np.inf)) == values[2]


def test_sparse_values() -> None:
    drawn = _draw(ArraySpec((50,), "b", draw="sparse"), np.random.default_rng(0))
    assert drawn.min() == 0
    assert 10 < np.count_nonzero(drawn) < 40


def test_positive_values() -> None:
    values = _draw(ArraySpec((50,), "b", draw="positive"), np.random.default_rng(0))
    assert values.min() > 0
    assert values.std() > 0.3


def test_integers_around_those_of_others() -> None:
    rng = np.random.default_rng(0)
    ids, around = (
        _draw(ArraySpec((500,), "b", "int32", draw), rng) for draw in ("normal", "around")
    )
    assert (ids.dtype, around.dtype) == (np.int32, np.int32)
    assert 0 <= ids.min() < ids.max() <= 99
    assert -50 <= around.min() < -40
    assert 140 < around.max() <= 149


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shifted_vectors(dtype: str) -> None:
    """The elements of a vector are all about -100, 0 or 100, and not all vectors agree."""
    drawn = _draw(ArraySpec((4, 5, 30), "b t v", dtype, "shifted"), np.random.default_rng(0))
    assert drawn.dtype == dtype
    means = drawn.astype(np.float64).mean(axis=-1)
    shifts = (means / 100).round()
    np.testing.assert_allclose(means, 100 * shifts, atol=1)
    assert set(shifts.ravel()) == {-1, 0, 1}


def test_peaked_vectors() -> None:
    """In about every fourth vector, one element is 200 larger."""
    drawn = _draw(ArraySpec((10, 20, 30), "b t v", draw="peaked"), np.random.default_rng(0))
    above = drawn - np.median(drawn, axis=-1, keepdims=True)
    peaks = (above > 150).sum(axis=-1)
    assert set(peaks.ravel()) == {0, 1}
    assert 0.15 < peaks.mean() < 0.35
