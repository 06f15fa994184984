"""A product with rows of a matrix in 8 bits, of which some columns at a time become floats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import (
    BadCall,
    Communication,
    Contract,
    Expected,
    Limit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.blocks import whole_on_all, work_is_split
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import Step, among_zeros, as_it_is, enter, gathered, scattered
from jaxpar.parallel import quantized


def _product(case: Case, x: Array, codes: Array, scales: Array) -> list[Expected]:
    return whole_on_all(case, (x @ codes.astype(x.dtype)) * scales[None])


def _case(mesh: str, axis: str, t: int, d: int, f: int, width: int, dtype: str = "float32") -> Case:
    """A case with d rows of the matrix on all devices together."""
    args = {
        "x": ArraySpec((t, d), f"t d_{axis}", dtype),
        "codes": ArraySpec((d, f), f"d_{axis} f", "int8", "around"),
        "scales": ArraySpec((f,), "f", draw="positive"),
    }
    return Case(mesh, args, {"axis": axis, "width": width})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """bfloat16; one device; all columns at once."""
    axis, other = axis_names(rng, 2, besides=("tp", "dp"))
    t, d, f = (pick(rng, sizes) for sizes in (range(9, 13), range(33, 40), range(21, 30)))
    return (
        _case(mesh_of(rng, **{axis: 5, other: 2}), axis, t, 5 * d, 7 * f, f, "bfloat16"),
        _case(f"{axis}=1,{other}=3", axis, t + 2, d, 5 * f, 5),
        _case(f"{other}=2,{axis}=3", axis, t + 5, 3 * d, f, f),
    )


def _wire_bytes(sizes: Sizes) -> float:
    """An all-reduce of the result, padded to n equal parts, in the dtype of x."""
    n, args = sizes.n(), sizes.case.args
    (t, d), (_, f) = args["x"].shape, args["codes"].shape
    return 2 * (n - 1) * -(-t * f // n) * (sizes.bytes("x") // (t * d // n))


_FIRST = _case("tp=4", "tp", 64, 2048, 2048, 256)

CONTRACT = Contract(
    kind="program",
    task="return x times the matrix, summed over `axis`; make floats of `width` columns at a time",
    reference=quantized.int8_row_linear,
    oracle=_product,
    cases=(_FIRST, _case("dp=2,tp=2", "tp", 16, 512, 512, 32)),
    draw=_drawn,
    errors=(
        BadCall(replace(_FIRST, kwargs={"axis": "tp", "width": 300}), "2,048 columns, width = 300"),
        BadCall(replace(_FIRST, kwargs={"axis": "tp", "width": 0}), "width = 0"),
    ),
    communication=Communication(
        "one all-reduce of the result, after the last columns",
        # A reduce-scatter and an all-gather are two.
        forward=((Limit(("all_reduce",), "axis", _wire_bytes, times=lambda sizes: 2),),),
    ),
    memory=MemoryLimit(
        "the result, and `width` columns as floats: at most 1.5 times the library's bytes of "
        "intermediate results",
    ),
    flops=work_is_split(),
    hints=(
        "lax.map(f, starts) calls f for one start after the other, and what f makes on the way is "
        "held once. What should f return for the columns from `start` on?",
        "x @ lax.dynamic_slice_in_dim(codes, start, width, axis=1).astype(x.dtype) is one slice of "
        "the result, [t, width]. Where do the scales come in, and how often?",
        "lax.map gives [f/width, t, width]: swap the first two dims, and reshape to [t, f]. Then "
        "one lax.psum, and times scales[None] at the end.",
    ),
    minimal="Each device has a part of every sum, so an all-reduce of the result is needed. The "
    "matrix takes a quarter of its bytes as long as only a slice of it is floats.",
    harder="Round the rows of x to 8 bits, too, so that the products are of integers, with int32 "
    "sums. What would you lose where x has one large column?",
)


def _in_slices(
    x: Array,
    codes: Array,
    scales: Array,
    *,
    axis: str,
    width: int,
    product: Callable[[Array, Array], Array] = lambda x, part: x @ part.astype(x.dtype),
    joined: Callable[[Array], Array] = lambda slices: jnp.swapaxes(slices, 0, 1),
    total: Step = lax.psum,
    check: bool = True,
) -> Array:
    """A right answer, of which a mistake changes one step."""
    columns = codes.shape[1]
    if check:
        _check(codes, width)

    def one(start: Array) -> Array:
        return product(x, lax.dynamic_slice_in_dim(codes, start, width, axis=1))

    slices = lax.map(one, jnp.arange(0, columns - width + 1, width))
    y = total(joined(slices).reshape(len(x), -1), axis)
    return y * scales.astype(x.dtype)[None, : y.shape[1]]


def _check(codes: Array, width: int) -> None:
    if width < 1 or codes.shape[1] % width:
        raise ValueError(f"{codes.shape[1]} columns, {width} at a time")


@wrong("values")
def slices_not_in_order(*args: Array, **how) -> Array:
    """[f/width, t, width] is reshaped to [t, f] as it is, which mixes rows and columns; swap the
    first two dims before."""
    return _in_slices(*args, **how, joined=lambda slices: slices)


@wrong("values")
def sum_left_out(*args: Array, **how) -> Array:
    """Each device returns the product with its own rows; add these products, with lax.psum."""
    return _in_slices(*args, **how, total=as_it_is)


@wrong("values")
def products_averaged(*args: Array, **how) -> Array:
    """The products of the devices are averaged; they are parts of a sum, so use lax.psum."""
    return _in_slices(*args, **how, total=lax.pmean)


@wrong("values")
def columns_scattered(*args: Array, **how) -> Array:
    """Each device returns its part of the columns; all devices must have the whole result, so use
    lax.psum, not lax.psum_scatter."""
    x, codes, scales = args
    y = _in_slices(x, codes, jnp.ones_like(scales), **how, total=as_it_is)
    return scattered(y * scales.astype(x.dtype)[None], how["axis"], 1)


@wrong("values")
def not_scaled(x: Array, codes: Array, scales: Array, **how) -> Array:
    """The result is a product with the codes; multiply column k of it by scale k."""
    return _in_slices(x, codes, jnp.ones_like(scales), **how)


@wrong("values")
def scaled_twice(x: Array, codes: Array, scales: Array, **how) -> Array:
    """The scales are multiplied twice, once before the sum and once after it."""
    return _in_slices(x, codes, scales**2, **how)


@wrong("values")
def scales_summed(x: Array, codes: Array, scales: Array, **how) -> Array:
    """The scales are summed over the devices; they are equal on all, so they come out n times too
    large."""
    return _in_slices(x, codes, lax.psum(enter(scales, how["axis"]), how["axis"]), **how)


@wrong("values")
def scales_along_rows(x: Array, codes: Array, scales: Array, **how) -> Array:
    """The scales are multiplied along the rows of the matrix; each belongs to a column, so multiply
    the columns of the result."""
    rows = jnp.resize(scales.astype(x.dtype), codes.shape[:1])
    return _in_slices(x * rows[None], codes, jnp.ones_like(scales), **how)


@wrong("values")
def codes_divided_by_scales(x: Array, codes: Array, scales: Array, **how) -> Array:
    """The result is divided by the scales; codes were made by dividing, so multiply."""
    return _in_slices(x, codes, 1 / scales, **how)


@wrong("values")
def codes_without_sign(x: Array, codes: Array, scales: Array, **how) -> Array:
    """The codes are read as uint8, so that -1 becomes 255; they are int8."""
    return _in_slices(x, codes.astype(jnp.uint8), scales, **how)


@wrong("values")
def summed_in_8_bits(*args: Array, **how) -> Array:
    """x becomes int8 for the product, whose sums then have 8 bits and overflow; make floats of the
    codes instead."""
    return _in_slices(*args, **how, product=lambda x, part: (x.astype(jnp.int8) @ part) * x[0, 0])


@wrong("values")
def x_in_8_bits(x: Array, codes: Array, scales: Array, **how) -> Array:
    """x is rounded to 8 bits as well, which loses about 1% of it; only the weights are codes
    here."""
    step = jnp.abs(x).max(axis=1, keepdims=True) / 127
    return _in_slices(jnp.round(x / step) * step, codes, scales, **how)


@wrong("values")
def result_in_float32(x: Array, codes: Array, scales: Array, **how) -> Array:
    """The result is float32 whatever x is; it has the dtype of x, and so have products and sums."""
    return _in_slices(x.astype(jnp.float32), codes, scales, **how)


@wrong("communication")
def sum_of_each_slice(*args: Array, **how) -> Array:
    """Every slice is summed over the devices by itself: as many all-reduces as slices, each of
    which has its latency; sum once, after the last slice."""
    x = args[0]

    def product(x: Array, part: Array) -> Array:
        return lax.psum(x @ part.astype(x.dtype), how["axis"])

    return _in_slices(x, *args[1:], **how, product=product, total=as_it_is)


@wrong("communication")
def codes_gathered(x: Array, codes: Array, scales: Array, *, axis: str, width: int) -> Array:
    """The rows of all devices are gathered, and all of x; multiply by your own rows, and add the
    results."""
    x, codes = gathered(x, axis, 1), gathered(codes, axis)
    return _in_slices(x, codes, scales, axis=axis, width=width, total=as_it_is)


@wrong("communication")
def products_gathered(*args: Array, **how) -> Array:
    """The products of all devices are gathered, then added: n/2 times the bytes of lax.psum."""
    return _in_slices(
        *args, **how, total=lambda y, axis: lax.all_gather(y, axis).sum(axis=0).astype(y.dtype)
    )


@wrong("communication")
def summed_in_float32(x: Array, codes: Array, scales: Array, **how) -> Array:
    """What is summed is float32, which takes twice the bytes where x is bfloat16; sum in the dtype
    of x."""
    return _in_slices(x.astype(jnp.float32), codes, scales, **how).astype(x.dtype)


@wrong("memory")
def matrix_whole(x: Array, codes: Array, scales: Array, *, axis: str, width: int) -> Array:
    """All of the matrix becomes floats at once, four times its bytes; convert `width` columns at a
    time, in lax.map."""
    del width
    y = lax.psum(x @ codes.astype(x.dtype), axis)
    return y * scales.astype(x.dtype)[None]


@wrong("memory")
def slices_unrolled(x: Array, codes: Array, scales: Array, *, axis: str, width: int) -> Array:
    """A Python loop puts all slices into one program, and the compiler makes floats of many of them
    early; use lax.map."""
    starts = range(0, codes.shape[1], width)
    slices = [x @ codes[:, i : i + width].astype(x.dtype) for i in starts]
    y = lax.psum(jnp.concatenate(slices, axis=1), axis)
    return y * scales.astype(x.dtype)[None]


@wrong("flops")
def scaled_by_a_diagonal_matrix(x: Array, codes: Array, scales: Array, **how) -> Array:
    """Each slice is scaled by a product with a diagonal matrix, which computes width times what a
    multiplication of the columns does."""
    width = how["width"]
    _check(codes, width)

    def one(start: Array) -> Array:
        diagonal = jnp.diag(lax.dynamic_slice_in_dim(scales, start, width).astype(x.dtype))
        part = lax.dynamic_slice_in_dim(codes, start, width, axis=1).astype(x.dtype)
        return (x @ part) @ diagonal

    slices = lax.map(one, jnp.arange(0, codes.shape[1], width))
    return lax.psum(jnp.swapaxes(slices, 0, 1).reshape(len(x), -1), how["axis"])


@wrong("memory")
def rows_among_zeros(x: Array, codes: Array, scales: Array, **how) -> Array:
    """Every device multiplies as many rows as there are in all, with zeros for those of the others;
    multiply by your own rows only."""
    x, codes = among_zeros(x, how["axis"], 1), among_zeros(codes, how["axis"])
    return _in_slices(x, codes, scales, **how)


@wrong("errors")
def last_columns_left_out(*args: Array, **how) -> Array:
    """Where `width` does not divide the columns, the last ones are left out without a word; raise
    ValueError."""
    return _in_slices(*args, **how, check=False)
