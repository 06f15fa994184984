"""Numbers in few bits, on one device: blocks of integers, codebooks, and 4-bit floats of QLoRA.

Every scheme cuts the numbers into blocks, and keeps one number for each block beside the codes, so
that one large number costs the precision of its own block alone.
"""

from functools import cache, reduce
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int, UInt8

CELL_BITS = 16


def quantize_blocks(
    x: Float[Array, "*n size"], *, block: int, bits: int
) -> tuple[Int[Array, "*n size"], Float[Array, "*n blocks"]]:
    """Rounds each block of `block` numbers to integers of 8 or 4 bits, times one scale.

    The largest magnitude of a block becomes 127 (in 8 bits) or 7 (in 4 bits). The scale of a block
    of zeros is 0, and that of a block with NaN or infinity is not finite.

    Math: scale = max |x| / (2**(bits-1) - 1); code = round(x / scale)
    Comm:
        forward: nothing
        backward: no derivative
    Memory: x*bits/32+x/block
    Source: Dettmers et al. 2022 (8-bit optimizers), section 2.1

    Raises:
        ValueError: `bits` is neither 8 nor 4, or `block` does not divide the numbers.
    """
    if bits not in (4, 8):
        raise ValueError(f"quantize_blocks: bits is {bits}; integers have 4 or 8; use one of these")
    blocks = _blocks("quantize_blocks", x, block)
    scales = jnp.abs(blocks).max(axis=-1) / (2 ** (bits - 1) - 1)
    codes = jnp.round(blocks / jnp.where(scales == 0, 1, scales)[..., None])
    return codes.reshape(x.shape).astype(f"int{bits}"), scales


def dequantize_blocks(
    codes: Int[Array, "*n size"], scales: Float[Array, "*n blocks"]
) -> Float[Array, "*n size"]:
    """The numbers that codes and the scales of their blocks stand for.

    Math: x = code * scale
    Comm:
        forward: nothing
        backward: no derivative
    Memory: x
    Source: Dettmers et al. 2022 (8-bit optimizers), section 2.1
    """
    blocks = codes.reshape(*scales.shape, -1).astype(scales.dtype)
    return (blocks * scales[..., None]).reshape(codes.shape)


def encode_blocks(
    x: Float[Array, "*n size"], codebook: np.ndarray, *, block: int
) -> tuple[UInt8[Array, "*n size"], Float[Array, "*n blocks"]]:
    """The codes of the nearest numbers of a codebook, and the largest magnitude of each block.

    The codebook is sorted, and reaches from -1 or 0 to 1. The numbers of a block are divided by
    their largest magnitude first; a block of zeros has the largest 0.

    Memory: x/4+x/block
    Source: Dettmers et al. 2022 (8-bit optimizers), section 2.1

    Raises:
        ValueError: `block` does not divide the numbers.
    """
    blocks = _blocks("encode_blocks", x, block)
    largest = jnp.abs(blocks).max(axis=-1)
    scaled = blocks / jnp.where(largest == 0, 1, largest)[..., None]
    return _nearest(scaled.astype(jnp.float32), codebook).reshape(x.shape), largest


def decode_blocks(
    codes: UInt8[Array, "*n size"], largest: Float[Array, "*n blocks"], codebook: np.ndarray
) -> Float[Array, "*n size"]:
    """The numbers that codes and the largest magnitudes of their blocks stand for.

    Memory: codes
    Source: Dettmers et al. 2022 (8-bit optimizers), section 2.1
    """
    numbers = jnp.asarray(codebook, largest.dtype)[codes.reshape(*largest.shape, -1)]
    return (numbers * largest[..., None]).reshape(codes.shape)


def nf4_quantize(
    w: Float[Array, "*n size"], *, block: int
) -> tuple[UInt8[Array, "*n half"], Float[Array, "*n blocks"]]:
    """Rounds each block to 16 numbers that normal weights use alike: two codes in a byte.

    The first of two neighbours is in the high half of the byte.

    Memory: w/8+w/block
    Source: Dettmers et al. 2023 (QLoRA), section 3

    Raises:
        ValueError: `block` does not divide the numbers, or is odd.
    """
    if block % 2:
        raise ValueError(f"nf4_quantize: block is {block}; two codes share a byte; use an even one")
    codes, largest = encode_blocks(w, normal_codebook(), block=block)
    pairs = codes.reshape(*codes.shape[:-1], -1, 2)
    # In place of codes[..., ::2] << 4 | codes[..., 1::2], which takes five times as long on a CPU.
    place = lax.broadcasted_iota(jnp.uint8, pairs.shape, pairs.ndim - 1)
    return (pairs << 4 * (1 - place)).sum(axis=-1, dtype=jnp.uint8), largest


def nf4_dequantize(
    packed: UInt8[Array, "*n half"], largest: Float[Array, "*n blocks"]
) -> Float[Array, "*n size"]:
    """The numbers that packed codes of NF4 and the largest magnitudes of their blocks stand for.

    Memory: 2*packed
    Source: Dettmers et al. 2023 (QLoRA), section 3
    """
    codes = jnp.stack([packed >> 4, packed & 15], axis=-1).reshape(*packed.shape[:-1], -1)
    return decode_blocks(codes, largest, normal_codebook())


def dynamic_codebook(*, signed: bool) -> np.ndarray:
    """The 256 numbers of dynamic 8-bit quantization, sorted, from -1 (or 0) to 1.

    Seven decades share them: each smaller decade has half as many numbers as the one above it. So
    numbers of any magnitude keep a similar relative precision, where integers would round all below
    1/254 of the largest to 0.

    Source: Dettmers 2016 (8-Bit Approximations), section 3; Dettmers et al. 2022, section 2.2
    """
    decades = range(7)
    borders = [np.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1) for i in decades]
    parts = [
        10.0 ** (i - 6) * (edges[:-1] + edges[1:]) / 2
        for i, edges in zip(decades, borders, strict=True)
    ]
    positive = np.concatenate(parts)
    both = [-positive, positive] if signed else [positive]
    return np.sort(np.concatenate([*both, [0, 1]])).astype(np.float32)


def normal_codebook() -> np.ndarray:
    """The 16 numbers of NF4, sorted, from -1 to 1: quantiles of the normal distribution, and 0.

    Weights are nearly normal, so that each of these numbers stands for about as many of them.

    Source: Dettmers et al. 2023 (QLoRA), section 3 and appendix E
    """
    quantile = NormalDist().inv_cdf
    end = (1 - 1 / 32 + 1 - 1 / 30) / 2  # the outermost quantile: the mean of both sides' halves
    positive = [quantile(p) for p in np.linspace(end, 0.5, 9)[:-1]]
    negative = [-quantile(p) for p in np.linspace(end, 0.5, 8)[:-1]]
    values = np.sort(np.array([*positive, 0.0, *negative]))
    return (values / values.max()).astype(np.float32)


def _blocks(where: str, x: Float[Array, "*n size"], block: int) -> Float[Array, "*n blocks block"]:
    if block < 1 or x.shape[-1] % block:
        raise ValueError(
            f"{where}: {x.shape[-1]} numbers in blocks of {block}; blocks must be full; "
            "pad x, or use a block that divides it"
        )
    return x.reshape(*x.shape[:-1], -1, block)


def _nearest(x: Float[Array, "..."], codebook: np.ndarray) -> UInt8[Array, "..."]:
    """The places of the nearest numbers of a sorted codebook, for x from -1 to 1."""
    borders = (codebook[:-1] + codebook[1:]) / 2
    if len(borders) < 16:
        return reduce(jnp.add, [(x > border).astype(jnp.uint8) for border in borders])
    # The sign, the exponent and 7 bits of the fraction name a cell, in which there is at most one
    # border: one look into a table and one comparison, in place of a search.
    cells = lax.bitcast_convert_type(x, jnp.uint32) >> (32 - CELL_BITS)
    below = jnp.asarray(_codes_below(tuple(borders.tolist())))[cells]
    above = x > jnp.asarray(np.append(borders, np.inf).astype(np.float32))[below]
    return below + above.astype(jnp.uint8)


@cache
def _codes_below(borders: tuple[float, ...]) -> np.ndarray:
    """How many borders are below all numbers of each cell.

    Raises:
        ValueError: there are two borders in a cell.
    """
    firsts = np.arange(2**CELL_BITS, dtype=np.uint32) << (32 - CELL_BITS)
    ends = np.stack([firsts, firsts | (2 ** (32 - CELL_BITS) - 1)]).view(np.float32)
    fewest, most = np.sort(np.searchsorted(np.array(borders, np.float32), ends), axis=0)
    if np.any((most - fewest > 1) & (np.abs(ends).max(axis=0) <= 1)):
        raise ValueError("encode_blocks: the codebook has two borders in a cell of floats")
    return np.minimum(fewest, 255).astype(np.uint8)
