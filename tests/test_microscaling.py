"""MX formats are those of the specification."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.microscaling import mx_dequantize, mx_quantize
from tests.arrays import random

FORMATS = pytest.mark.parametrize(
    ("dtype", "most", "binade"),
    [
        (jnp.float8_e4m3fn, 448, 8),
        (jnp.float8_e5m2, 57344, 15),
        (jnp.float4_e2m1fn, 6, 2),
    ],
)


@FORMATS
def test_a_scale_is_a_power_of_two_below_the_largest(dtype: type, most: int, binade: int) -> None:
    x = random(3, 64) * 10.0 ** np.arange(-2, 1)[:, None]
    elements, scales = mx_quantize(jnp.asarray(x, jnp.float32), dtype=dtype)
    assert elements.dtype == dtype and scales.dtype == jnp.float8_e8m0fnu
    largest = np.abs(x.reshape(3, 2, 32)).max(axis=2)
    np.testing.assert_array_equal(
        scales.astype(jnp.float32), 2.0 ** (np.floor(np.log2(largest)) - binade)
    )
    assert jnp.abs(elements.astype(jnp.float32)).max() <= most


@FORMATS
def test_the_numbers_of_a_format_come_back(dtype: type, most: int, binade: int) -> None:
    numbers = np.array([most, -most, most / 2, 0, *[1.0] * 28], np.float32) / 4
    again = mx_dequantize(*mx_quantize(jnp.asarray(numbers), dtype=dtype), dtype=jnp.float32)
    np.testing.assert_array_equal(again, numbers)


def test_mxfp4_has_eight_magnitudes() -> None:
    numbers = jnp.linspace(-6, 6, 64).reshape(2, 32)
    elements, _ = mx_quantize(numbers, dtype=jnp.float4_e2m1fn)
    found = np.unique(np.abs(elements.astype(np.float32)))
    np.testing.assert_array_equal(found, [0, 0.5, 1, 1.5, 2, 3, 4, 6])


def test_a_number_above_the_largest_becomes_that() -> None:
    """7.9 is in the binade of 4, whose largest number is 6."""
    x = jnp.zeros(32).at[0].set(7.9)
    again = mx_dequantize(*mx_quantize(x, dtype=jnp.float4_e2m1fn), dtype=jnp.float32)
    assert again[0] == 6 and not again[1:].any()


def test_blocks_must_be_full() -> None:
    with pytest.raises(ValueError, match="40 numbers in blocks of 32"):
        mx_quantize(jnp.ones(40), dtype=jnp.float8_e4m3fn)
