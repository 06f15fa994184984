"""Numbers in few bits are near what they stand for, and codebooks are those of the papers."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import quantize
from tests.arrays import random

CODEBOOKS = {
    "signed": quantize.dynamic_codebook(signed=True),
    "unsigned": quantize.dynamic_codebook(signed=False),
    "nf4": quantize.normal_codebook(),
}
BOOKS = pytest.mark.parametrize("codebook", CODEBOOKS.values(), ids=CODEBOOKS)
# Dettmers et al. 2023, appendix E.
NF4 = [
    -1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0,
]  # fmt: skip


def test_nf4_has_the_numbers_of_its_paper() -> None:
    np.testing.assert_allclose(CODEBOOKS["nf4"], NF4, atol=1e-6)


@pytest.mark.parametrize("signed", [True, False])
def test_dynamic_codebooks_are_sorted_and_have_256_numbers(signed: bool) -> None:
    book = quantize.dynamic_codebook(signed=signed)
    assert len(book) == 256
    assert (np.diff(book) > 0).all()
    assert (book[0], book[-1]) == (-0.99296875 if signed else 0, 1)


@BOOKS
def test_each_number_gets_the_nearest_code(codebook: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([
        rng.uniform(-1, 1, 100_000), 10.0 ** rng.uniform(-9, 0, 100_000), codebook,
        *(np.nextafter((codebook[1:] + codebook[:-1]) / 2, side) for side in (-2, 2)), [0, -0.0, 1],
    ]).astype(np.float32)  # fmt: skip
    x = x if codebook[0] < 0 else np.abs(x)
    whole = np.append(x, np.float32(1))  # a block whose largest is 1 is not scaled
    codes, largest = quantize.encode_blocks(jnp.asarray(whole), codebook, block=whole.size)
    assert largest == 1
    distance = np.abs(codebook[np.asarray(codes)] - whole)
    places = np.clip(np.searchsorted(codebook, whole), 1, len(codebook) - 1)
    sides = np.stack([codebook[places - 1], codebook[places]])
    np.testing.assert_allclose(distance, np.abs(sides - whole).min(axis=0), atol=1e-8)


@BOOKS
def test_blocks_are_scaled_apart(codebook: np.ndarray) -> None:
    x = np.abs(random(3, 4, 16)) * 10.0 ** np.arange(-3, 1)[:, None]
    x[0, 1] = 0
    codes, largest = quantize.encode_blocks(jnp.asarray(x.reshape(3, 64)), codebook, block=16)
    np.testing.assert_allclose(largest, x.max(axis=2), rtol=1e-6)
    again = np.asarray(quantize.decode_blocks(codes, largest, codebook)).reshape(x.shape)
    assert not again[0, 1].any()
    gap = np.diff(codebook).max() / 2
    assert (np.abs(again - x) <= 1.0001 * gap * x.max(axis=2, keepdims=True)).all()


def test_nf4_packs_the_first_number_high() -> None:
    w = jnp.asarray(np.array(NF4, np.float32)[None])
    packed, largest = quantize.nf4_quantize(w, block=16)
    assert packed.tolist() == [[16 * first + first + 1 for first in range(0, 16, 2)]]
    np.testing.assert_allclose(quantize.nf4_dequantize(packed, largest), w, atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@BOOKS
def test_what_is_not_finite_is_not_hidden(codebook: np.ndarray, value: float) -> None:
    x = jnp.asarray(random(64)).at[20].set(value)
    again = quantize.decode_blocks(*quantize.encode_blocks(x, codebook, block=16), codebook)
    assert not np.isfinite(again[16:32]).any()
    assert np.isfinite(again[:16]).all()


def test_bad_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="encode_blocks: 8 numbers in blocks of 3"):
        quantize.encode_blocks(jnp.zeros(8), CODEBOOKS["nf4"], block=3)
    with pytest.raises(ValueError, match="nf4_quantize: block is 3"):
        quantize.nf4_quantize(jnp.zeros(9), block=3)
