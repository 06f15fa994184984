"""How inputs are drawn."""

import numpy as np
import pytest

from jaxpar.contracts.case import Array
from jaxpar.grading.oracle import _draw


@pytest.mark.parametrize("seed", range(5))
def test_padding_follows_the_real_rows(seed: int) -> None:
    mask = _draw(Array((6, 2), "b t", "bool", draw="padded"), np.random.default_rng(seed))
    assert mask.dtype == bool
    real = mask[:, 0]
    np.testing.assert_array_equal(mask[:, 1], real)
    assert list(real) == sorted(real, reverse=True)
    assert 1 <= real.sum() <= 2


def test_positive_values() -> None:
    values = _draw(Array((50,), "b", draw="positive"), np.random.default_rng(0))
    assert values.min() > 0
    assert values.std() > 0.3
