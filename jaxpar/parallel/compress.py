"""Compressed all-reduces: a mean over devices that is sent in fewer bits than it has.

What one step loses by rounding is kept on the device that lost it, as an error, and added to what
that device sends in the next step: error feedback. So no part of a gradient is lost for good; it
arrives later.

Errors and means are float32, whatever a gradient is: what is lost in one step is small against
what it is added to. In the sizes of `Comm:`, an element is four bytes, so N numbers in int8 are N/4
elements.
"""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Float32, Num, UInt8

from jaxpar.quantize import dequantize_blocks, quantize_blocks

Codes = tuple[Num[Array, "n ..."], Float[Array, "n ..."]]
"""The numbers of n chunks in few bits, and the scales of their blocks."""


def quantized_all_reduce(
    x: Float[Array, " size"],
    error: Float32[Array, " size"],
    second_error: Float32[Array, " part"],
    *,
    axis: str,
    block: int,
    bits: int,
) -> tuple[Float32[Array, " size"], Float32[Array, " size"], Float32[Array, " part"]]:
    """The mean of x over the devices, sent as integers of 8 or 4 bits with error feedback.

    First, device j adds its `error` to x, rounds the sum, and sends the i-th of n equal parts of it
    to device i, which averages what arrives. Then device i adds its `second_error` to this mean,
    rounds the sum, and sends it to all. What these two roundings lose are the new errors. Errors
    are 0 before the first step, and each device has its own. Integers travel with the scales of
    their blocks: `quantize_blocks(x, block=block, bits=bits)` makes both, and
    `dequantize_blocks(codes, scales)` turns them into numbers again. Each number is rounded to one
    of the two nearest multiples of its block's scale: the library takes the nearer one, but one
    that is chosen at random is right as well. Returns the mean, the new `error` and the new
    `second_error`, all in float32. x may have any float dtype.

    Math: error_j' = (x_j + error_j) - sent_j; mean_i = (sum_j sent_j[i])/n;
        second_i' = (mean_i + second_i) - sent_i; y = [sent_1, ..., sent_n]
    Comm:
        forward: all_to_all(axis) x*bits/32+x/block + all_gather(axis) (x*bits/32+x/block)/n
        backward: no derivative
    Memory: 2*x+x/n
    Source: Alistarh et al. 2017 (QSGD); Tang et al. 2019 (DoubleSqueeze), algorithm 1

    Raises:
        ValueError: n equal parts of full blocks do not make up x, or `bits` is neither 8 nor 4.
    """
    encode = partial(quantize_blocks, block=block, bits=bits)
    return _in_two_halves(
        "quantized_all_reduce", x, error, second_error, encode, dequantize_blocks, axis, block
    )


def sign_all_reduce(
    x: Float[Array, " size"],
    error: Float32[Array, " size"],
    second_error: Float32[Array, " part"],
    *,
    axis: str,
    block: int,
) -> tuple[Float32[Array, " size"], Float32[Array, " size"], Float32[Array, " part"]]:
    """The mean of x over the devices, of which only signs travel: one bit for each number.

    The steps, the errors and what is returned are as in `quantized_all_reduce`. Each number is sent
    as its sign, which stands for this sign times the mean magnitude of its block. Eight signs share
    a byte.

    Math: sent = sign(v) * mean |v| over its block, where v = x + error
    Comm:
        forward: all_to_all(axis) x/32+x/block + all_gather(axis) (x/32+x/block)/n
        backward: no derivative
    Memory: 2*x+x/n
    Source: Seide et al. 2014 (1-bit SGD); Karimireddy et al. 2019 (EF-signSGD), algorithm 1

    Raises:
        ValueError: n equal parts of full blocks do not make up x, or 8 does not divide `block`.
    """
    if block % 8:
        raise ValueError(
            f"sign_all_reduce: block is {block}; eight signs share a byte; use a multiple of 8"
        )
    encode = partial(_signs, block=block)
    return _in_two_halves(
        "sign_all_reduce", x, error, second_error, encode, _from_signs, axis, block
    )


def top_k_all_reduce(
    x: Float[Array, " size"], error: Float32[Array, " size"], *, axis: str, k: int
) -> tuple[Float32[Array, " size"], Float32[Array, " size"]]:
    """The mean over the devices of the k largest numbers of each, with error feedback.

    Each device adds its `error` to x, and sends the k numbers of the sum that have the largest
    magnitudes, with their places. Of equal magnitudes, any may be sent. What a device does not send
    is its new error. Returns the mean of what all devices have sent, with 0 for each number that a
    device has not sent, and the new error, both in float32. x may have any float dtype.

    Math: sent_j = the k largest |x_j + error_j|; error_j' = x_j + error_j - sent_j;
        y = (sum_j sent_j)/n
    Comm:
        forward: all_gather(axis) 2*k
        backward: no derivative
    Memory: 2*x
    Source: Stich, Cordonnier and Jaggi 2018 (Sparsified SGD with Memory), algorithm 1

    Raises:
        ValueError: k is below 1, or x has fewer than k numbers.
    """
    if not 1 <= k <= len(x):
        raise ValueError(f"top_k_all_reduce: k is {k}, of {len(x)} numbers; use 1 to {len(x)}")
    corrected = x + error
    _, places = lax.top_k(jnp.abs(corrected), k)
    values = lax.all_gather(corrected[places], axis, to="invarying")
    all_places = lax.all_gather(places, axis, to="invarying")
    total = jnp.zeros(x.shape, values.dtype).at[all_places].add(values)
    return total / lax.axis_size(axis), corrected.at[places].set(0)


def powersgd_all_reduce(
    m: Float[Array, "rows cols"],
    q: Float32[Array, "cols rank"],
    error: Float32[Array, "rows cols"],
    *,
    axis: str,
) -> tuple[Float32[Array, "rows cols"], Float32[Array, "cols rank"], Float32[Array, "rows cols"]]:
    """The mean of a matrix over the devices, sent as two factors of low rank, with error feedback.

    This is one step of a power iteration: q, the right factor of the step before, gives the left
    factor p, and p gives the new q. q is equal on all devices, and random before the first step.
    Returns the mean, the new q and the new error.

    Math: v_j = m_j + error_j; p = orthogonalize((sum_j v_j @ q)/n); q' = (sum_j v_j.T @ p)/n;
        y = p @ q'.T; error_j' = v_j - y
    Comm:
        forward: all_reduce(axis) rows*rank+cols*rank
        backward: no derivative
    Memory: 2*rows*cols+cols*rank
    Source: Vogels, Karimireddy and Jaggi 2019 (PowerSGD), algorithms 1 and 2
    """
    corrected = m + error
    p = orthogonalize(lax.pmean(corrected @ q, axis))
    q = lax.pmean(corrected.T @ p, axis)
    mean = p @ q.T
    return mean, q, corrected - mean


def orthogonalize(p: Float[Array, "rows rank"]) -> Float[Array, "rows rank"]:
    """Makes the columns orthogonal and of length 1, one after the other (Gram-Schmidt).

    A column that the ones before it span becomes 0.

    Math: p_k = p_k - sum_(i<k) p_i (p_i . p_k); p_k = p_k / |p_k|
    Comm:
        forward: nothing
        backward: nothing
    Memory: p
    Source: Vogels, Karimireddy and Jaggi 2019 (PowerSGD), section 3
    """
    columns: list[Array] = []
    for column in p.T:
        before = jnp.linalg.norm(column)
        for other in columns:
            column = column - other * (other @ column)
        length = jnp.linalg.norm(column)
        spanned = length <= 1e-6 * before
        columns.append(jnp.where(spanned, 0, column / jnp.where(spanned, 1, length)))
    return jnp.stack(columns, axis=1)


def _in_two_halves(
    where: str,
    x: Float[Array, " size"],
    error: Float32[Array, " size"],
    second_error: Float32[Array, " part"],
    encode: Callable[[Array], Codes],
    decode: Callable[[Array, Array], Array],
    axis: str,
    block: int,
) -> tuple[Float32[Array, " size"], Float32[Array, " size"], Float32[Array, " part"]]:
    """A reduce-scatter and an all-gather, both of codes; each keeps what its rounding lost."""
    n = lax.axis_size(axis)
    if block < 1 or len(x) % (n * block):
        raise ValueError(
            f"{where}: {len(x)} numbers in blocks of {block} on {n} devices; each device averages "
            f"the same number of full blocks; pad x to a multiple of {n * max(block, 1)}, or use "
            "another block"
        )
    parts = (x + error).reshape(n, -1)
    codes, scales = encode(parts)
    error = parts - decode(codes, scales)
    arrived = [lax.all_to_all(sent, axis, 0, 0) for sent in (codes, scales)]
    part = decode(*arrived).mean(axis=0) + second_error
    codes, scales = encode(part)
    second_error = part - decode(codes, scales)
    gathered = [lax.all_gather(sent, axis, to="invarying") for sent in (codes, scales)]
    return decode(*gathered).reshape(x.shape), error.reshape(x.shape), second_error


def _signs(x: Float[Array, "*n size"], *, block: int) -> tuple[UInt8[Array, "..."], Array]:
    """The signs of all numbers, eight in a byte, and the mean magnitude of each block."""
    blocks = jnp.abs(x).reshape(*x.shape[:-1], -1, block)
    return jnp.packbits(x >= 0, axis=-1), blocks.mean(axis=-1)


def _from_signs(signs: UInt8[Array, "..."], scales: Array) -> Float[Array, "*n size"]:
    positive = jnp.unpackbits(signs, axis=-1).reshape(*scales.shape, -1).astype(bool)
    magnitudes = scales[..., None]
    return jnp.where(positive, magnitudes, -magnitudes).reshape(*scales.shape[:-1], -1)
