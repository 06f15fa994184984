"""A product with a frozen matrix of 4-bit codes, which is whole at no time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.adapters.common import codes
from jaxpar.contracts.base import (
    BadCall,
    Communication,
    Contract,
    Expected,
    FlopsLimit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.mesh import vary_alike
from jaxpar.parallel import adapters
from jaxpar.quantize import nf4_dequantize, normal_codebook


def _whole(case: Case, x: Array, packed: Array, largest: Array) -> list[Expected]:
    """With all numbers at once, by a codebook that is looked up for each half of a byte."""
    book = jnp.asarray(normal_codebook(), largest.dtype)
    pairs = jnp.stack([book[packed // 16], book[packed % 16]], axis=-1)
    w = pairs.reshape(len(packed), -1) * jnp.repeat(largest, case.kwargs["block"], axis=1)
    w = lax.stop_gradient(w)
    y = x @ w
    # x is split by its first dim over one axis, and the columns over the other, if there is one.
    rows, *columns = case.sizes.values()
    blocks = y.reshape(rows, len(x) // rows, *y.shape[1:-1], *columns, -1)
    return [Expected(jnp.moveaxis(blocks, -2, 1) if columns else blocks)]


def _case(
    mesh: str, rows: tuple[int, ...], d: int, f: int, block: int, dtype: str = "float32"
) -> Case:
    """The first axis of the mesh splits the first dim of x, and the second one the columns.

    The leading dims of x, and the number of columns, are those of one device.
    """
    sizes = Case(mesh, {}).sizes
    (data, n), *others = sizes.items()
    columns = f * others[0][1] if others else f
    packed, largest = codes(d, columns, block, "d", f"f_{others[0][0]}" if others else "f")
    names = " ".join([f"b_{data}", *"tuv"[: len(rows) - 1]])
    x = ArraySpec((rows[0] * n, *rows[1:], d), f"{names} d", dtype)
    return Case(mesh, {"x": x, "packed": packed, "largest": largest}, {"block": block})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """In low precision, with columns that are split; blocks of 2; one block in a row."""
    one, two = axis_names(rng, 2, besides=("dp", "tp"))
    blocks, block = pick(rng, (11, 13)), pick(rng, (24, 40))
    return (
        _case(f"{one}=2,{two}=3", (5, 3), 204, blocks * block, block, "bfloat16"),
        _case(f"{one}=3", (pick(rng, (3, 4)),), pick(rng, (301, 303)), 2 * pick(rng, (81, 83)), 2),
        _case(f"{one}=2,{two}=1", (pick(rng, (6, 7)), 1, 2), 42, 20, 20),
    )


_FIRST = _case("dp=2", (8,), 256, 512, 64)

CONTRACT = Contract(
    kind="program",
    task="return x times the matrix of NF4 codes, of which few columns at a time are numbers",
    reference=adapters.nf4_linear,
    oracle=_whole,
    cases=(_FIRST, _case("dp=2,tp=2", (2, 3), 192, 384, 32)),
    draw=_drawn,
    gradient=("x", "largest"),
    communication=Communication(
        "nothing is sent forward; backward the gradient of x is summed once over the devices that "
        "have other columns",
        forward=((),),
    ),
    memory=MemoryLimit(
        "the numbers of one block of each row, forward and backward: at most 2.5 times the "
        "library's bytes of intermediate results",
        multiple=2.5,
        programs=("forward", "gradient"),
    ),
    flops=FlopsLimit(
        "one product forward and one for the gradient of x: at most 1.1 times the library's flops; "
        "a gradient may compute the forward pass again",
        multiple=1.1,
        programs=("forward", "gradient"),
        may_recompute=True,
    ),
    errors=(
        BadCall(replace(_FIRST, kwargs={"block": 32}), "there are half as many blocks"),
        BadCall(_case("dp=2", (8,), 256, 513, 27), "block is odd"),
    ),
    imports=("jaxpar.quantize.nf4_dequantize",),
    hints=(
        "nf4_dequantize takes the codes and the largest magnitudes of some columns as well: those "
        "of block i are block//2 bytes and one number in each row.",
        "A loop over the blocks computes block columns of the result at a time: lax.map over "
        "jnp.arange(blocks), with lax.dynamic_slice_in_dim along dim 1, and then a transposition.",
        "What a loop computes is kept for its gradient, and so would be the numbers of all blocks. "
        "jax.checkpoint around its body (prevent_cse=False) computes them again. The matrix is "
        "frozen: lax.stop_gradient(largest). Where x is equal on devices that have other columns, "
        "type it as varying once, before the loop: vary_alike of jaxpar.mesh.",
    ),
    minimal="A product needs numbers, and the gradient of x needs them a second time; but no "
    "column needs another column's.",
    harder="Quantize `largest` as well, to 8 bits in blocks of 256 (QLoRA's double quantization): "
    "how many bits does a weight take then?",
)

Decode = Callable[[Array, Array], Array]


def _columns(packed: Array, largest: Array, i: Array, block: int, decode: Decode) -> Array:
    part = lax.dynamic_slice_in_dim(packed, i * (block // 2), block // 2, 1)
    return decode(part, lax.dynamic_slice_in_dim(largest, i, 1, 1))


def _product(
    x: Array, packed: Array, largest: Array, *, block: int,
    decode: Decode = nf4_dequantize,
    frozen: Callable[[Array], Array] = lax.stop_gradient,
    again: Callable[[Callable], Callable] = lambda f: jax.checkpoint(f, prevent_cse=False),
    check: bool = True,
    alike: Callable[..., tuple[Array, ...]] = vary_alike,
) -> Array:  # fmt: skip
    """A right answer, of which mistakes change a step."""
    if check and (block % 2 or 2 * packed.shape[1] != block * largest.shape[1]):
        raise ValueError("block")
    x, packed, largest = alike(x, packed, frozen(largest))
    rows = x.reshape(-1, x.shape[-1])

    def columns(i: Array) -> Array:
        return rows @ _columns(packed, largest, i, block, decode).astype(x.dtype)

    y = lax.map(again(columns), jnp.arange(largest.shape[1]))
    return jnp.moveaxis(y, 0, 1).reshape(*x.shape[:-1], -1)


def _looked_up(high: Array, low: Array, largest: Array, book: Array) -> Array:
    """Codes of neighbours, of numbers of a codebook."""
    pairs = jnp.stack([book[high], book[low]], axis=-1).reshape(*high.shape[:-1], -1)
    return pairs * largest


def _book() -> Array:
    return jnp.asarray(normal_codebook())


@wrong("values")
def nibbles_swapped(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """The two codes of a byte are swapped; the first of two neighbours is in the high half."""

    def decode(packed: Array, largest: Array) -> Array:
        return _looked_up(packed & 15, packed >> 4, largest, _book())

    return _product(x, packed, largest, block=block, decode=decode)


@wrong("values")
def high_halves_first(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """The high halves of all bytes of a block come first, and then the low ones; the two codes of a
    byte are neighbours."""

    def decode(packed: Array, largest: Array) -> Array:
        return _book()[jnp.concatenate([packed >> 4, packed & 15], axis=1)] * largest

    return _product(x, packed, largest, block=block, decode=decode)


@wrong("values")
def codes_as_integers(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """Codes are taken as integers from -7 to 8; a code is a place in the 16 numbers of NF4."""

    def decode(packed: Array, largest: Array) -> Array:
        return _looked_up(packed >> 4, packed & 15, largest, (jnp.arange(16) - 7) / 8)

    return _product(x, packed, largest, block=block, decode=decode)


@wrong("values")
def codebook_turned_round(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """The codebook runs from 1 to -1; code 0 is -1, and code 15 is 1."""

    def decode(packed: Array, largest: Array) -> Array:
        return _looked_up(packed >> 4, packed & 15, largest, _book()[::-1])

    return _product(x, packed, largest, block=block, decode=decode)


@wrong("values")
def one_largest_for_a_row(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """All blocks of a row are multiplied by the largest magnitude of its first block; each block
    has its own."""
    return _product(x, packed, jnp.repeat(largest[:, :1], largest.shape[1], 1), block=block)


@wrong("values")
def largest_left_out(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """The numbers reach from -1 to 1; multiply them by the largest magnitude of their block."""
    return _product(x, packed, jnp.ones_like(largest), block=block)


@wrong("values")
def blocks_not_in_order(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """The columns of the blocks are interleaved; after lax.map, dim 0 counts the blocks, and must
    stand before the columns of a block: jnp.moveaxis(y, 0, 1)."""
    y = _product(x, packed, largest, block=block)
    blocks = y.reshape(*y.shape[:-1], -1, block)
    return jnp.moveaxis(blocks, -1, -2).reshape(y.shape)


@wrong("values")
def in_the_dtype_of_largest(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """The result has the dtype of `largest`; return it in that of x."""
    return _product(x, packed, largest, block=block).astype(largest.dtype)


@wrong("gradient")
def x_is_frozen(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """x has no gradient; the matrix is frozen, and the layers before it have adapters to train."""
    return _product(lax.stop_gradient(x), packed, largest, block=block)


@wrong("gradient")
def largest_is_trained(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """`largest` has a gradient, for which numbers and gradients of all columns are computed; the
    matrix is frozen: lax.stop_gradient."""
    return _product(x, packed, largest, block=block, frozen=lambda largest: largest)


@wrong("communication")
def cast_in_the_loop(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """x becomes varying inside the loop, where its gradient is summed over the devices once for
    each block; type it as varying once, before the loop."""
    return _product(x, packed, largest, block=block, alike=lambda *arrays: arrays)


@wrong("memory")
def whole_matrix(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """The whole matrix is turned into numbers, which takes 8 times the bytes of its codes; turn a
    block of columns at a time."""
    if block % 2 or 2 * packed.shape[1] != block * largest.shape[1]:
        raise ValueError("block")
    x, packed, largest = vary_alike(x, packed, lax.stop_gradient(largest))
    return x @ nf4_dequantize(packed, largest).astype(x.dtype)


@wrong("memory")
def numbers_kept(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """The numbers of all blocks are kept for the backward pass: together they are the whole matrix;
    put jax.checkpoint around the body of the loop."""
    return _product(x, packed, largest, block=block, again=lambda f: f)


@wrong("memory")
def all_blocks_at_once(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """jax.vmap over the blocks computes with all of them at once; lax.map takes one at a time."""
    if block % 2 or 2 * packed.shape[1] != block * largest.shape[1]:
        raise ValueError("block")
    x, packed, largest = vary_alike(x, packed, lax.stop_gradient(largest))

    def columns(i: Array) -> Array:
        return x @ _columns(packed, largest, i, block, nf4_dequantize).astype(x.dtype)

    y = jax.vmap(columns)(jnp.arange(largest.shape[1]))
    return jnp.moveaxis(y, 0, -2).reshape(*x.shape[:-1], -1)


@wrong("memory")
def every_block_among_zeros(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """Each turn of the loop multiplies by as many columns as there are in all, most of them zeros;
    multiply by one block of columns."""
    if block % 2 or 2 * packed.shape[1] != block * largest.shape[1]:
        raise ValueError("block")
    x, packed, largest = vary_alike(x, packed, lax.stop_gradient(largest))

    @jax.checkpoint
    def add(y: Array, i: Array) -> tuple[Array, None]:
        part = _columns(packed, largest, i, block, nf4_dequantize).astype(x.dtype)
        among = jnp.zeros_like(part, shape=(len(part), 2 * packed.shape[1]))
        return y + x @ lax.dynamic_update_slice_in_dim(among, part, i * block, 1), None

    y = jnp.zeros_like(x, shape=(*x.shape[:-1], 2 * packed.shape[1]))
    return lax.scan(add, y, jnp.arange(largest.shape[1]))[0]


@wrong("flops")
def every_product_twice(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """Every product is computed twice, to choose one of two equal results; compute it once."""
    x, packed, largest = vary_alike(x, packed, largest)  # so that its gradient is summed once
    once = _product(x, packed, largest, block=block)
    again = _product(x, packed, largest, block=block)
    return jnp.where(jnp.isfinite(once), again, once)


@wrong("errors")
def blocks_not_checked(x: Array, packed: Array, largest: Array, *, block: int) -> Array:
    """Codes and blocks that do not fit are not refused; raise ValueError where `block` is odd, or
    where there is not one number in `largest` for each full block."""
    return _product(x, packed, largest, block=block, check=False)
