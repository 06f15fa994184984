"""GPTQ and AWQ lose less of a product than rounding does, and give the same where they must."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.post_training import awq, gptq, round_columns
from tests.arrays import random

D, F = 32, 24
BITS = pytest.mark.parametrize("bits", [8, 4, 3])


def inputs() -> np.ndarray:
    """Inputs whose columns differ in size, and are not independent."""
    mixed = random(400, D) @ random(D, D) / D**0.5
    return mixed * np.exp(random(D))


def error(x: np.ndarray, w: np.ndarray, y: np.ndarray) -> float:
    return float(np.linalg.norm(y - x @ w) / np.linalg.norm(x @ w))


def product(x: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return x @ np.asarray(codes, np.float32) * np.asarray(scales)


@BITS
def test_columns_are_rounded_to_the_nearest(bits: int) -> None:
    w = random(D, F) * np.where(np.arange(F) == 3, 0, 1).astype(np.float32)
    codes, scales = round_columns(w, bits=bits)
    assert codes.dtype == jnp.int8 and np.abs(codes).max() == 2 ** (bits - 1) - 1
    again, steps = np.asarray(codes, np.float32) * np.asarray(scales), np.asarray(scales)
    assert np.all(np.abs(again - w) <= 0.5001 * steps)


@BITS
def test_both_lose_less_of_a_product_than_rounding(bits: int) -> None:
    x, w = inputs(), random(D, F)
    rounded = error(x, w, product(x, *round_columns(w, bits=bits)))
    compensated = error(x, w, product(x, *gptq(w, x, bits=bits)))
    codes, scales, rows = awq(w, x, bits=bits)
    scaled = error(x, w, product(x / np.asarray(rows), codes, scales))
    assert compensated < 0.9 * rounded and scaled < 0.95 * rounded


@BITS
def test_without_correlations_nothing_is_compensated(bits: int) -> None:
    """Of inputs whose products with each other are 0, no other row can make up for an error."""
    w, x = random(D, F), np.sqrt(D) * np.eye(D, dtype=np.float32)
    for one, other in zip(gptq(w, x, bits=bits), round_columns(w, bits=bits), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@BITS
def test_inputs_of_equal_size_scale_nothing(bits: int) -> None:
    w, x = random(D, F), np.sign(random(64, D))
    codes, scales, rows = awq(w, x, bits=bits)
    np.testing.assert_allclose(rows, 1)
    for one, other in zip((codes, scales), round_columns(w, bits=bits), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@BITS
def test_codes_have_their_bits(bits: int) -> None:
    x, w = inputs(), random(D, F)
    for codes in (gptq(w, x, bits=bits)[0], awq(w, x, bits=bits)[0]):
        assert np.abs(codes).max() == 2 ** (bits - 1) - 1


def test_a_column_of_zeros_stays_zeros() -> None:
    w = random(D, F)
    w[:, 2] = 0
    for codes, scales, *_ in (gptq(w, inputs(), bits=4), awq(w, inputs(), bits=4)):
        assert not np.any(codes[:, 2]) and scales[2] == 0
