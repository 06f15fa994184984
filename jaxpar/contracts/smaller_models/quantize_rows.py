"""Rows of a matrix in 8 bits, with one scale for each column of all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, mesh_order, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.smaller_models.common import first_beyond, on_devices, place_in
from jaxpar.contracts.steps import gathered, own_shard
from jaxpar.mesh import parse_mesh
from jaxpar.parallel import quantized

# Of a step: what float32 loses in a right answer is 127 units in the last place, 1e-5 of a step.
NEAREST = 0.501
SCALES = 1e-6  # relative to the scale: several units in the last place


def _rounded(case: Case, w: Array) -> list[Expected]:
    """One right result of several: a number in the middle of two steps may go to either."""
    rows = axis_first(case, w)  # [n, *others, rows, cols]
    scales = jnp.abs(rows).max(axis=(0, -2), keepdims=True) / 127
    codes = jnp.round(rows / jnp.where(scales == 0, 1, scales))
    of_columns = on_every_device(case, scales[0, ..., 0, :])
    return [Expected(mesh_order(case, codes)), Expected(of_columns)]


def _law(case: Case, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str | None:
    """The scales are those of whole columns, and no number is further than half a step away."""
    w = on_devices(case, inputs[0])
    codes, scales = (np.asarray(output, np.float64) for output in outputs)
    place = list(case.sizes).index(case.kwargs["axis"])
    right = np.abs(w).max(axis=(place, -2), keepdims=True) / 127
    right = np.broadcast_to(right[..., 0, :], scales.shape)
    at = first_beyond(np.abs(scales - right), SCALES * right)
    if at:
        return (
            f"{place_in(case, at)} of the scales is {scales[at]:.6g}; the largest magnitude of "
            f"this column on all devices, divided by 127, is {right[at]:.6g}"
        )
    steps = np.broadcast_to(scales[..., None, :], w.shape)
    at = first_beyond(np.abs(codes * steps - w), NEAREST * steps)
    if at:
        return (
            f"{place_in(case, at)} is {w[at]:.6g}, and its code {codes[at]:g} times the scale "
            f"{steps[at]:.6g} is {codes[at] * steps[at]:.6g}; the nearest multiple is at most half "
            "a scale away"
        )
    at = first_beyond(np.abs(codes), np.where(steps == 0, 0, 127))
    if at:
        return (
            f"{place_in(case, at)} of the codes is {codes[at]:g}; codes are from -127 to 127, and "
            "0 in a column of zeros"
        )
    return None


def _case(mesh: str, axis: str, rows: int, cols: int, dtype: str = "float32") -> Case:
    """Each device has so many rows."""
    devices = int(np.prod([*parse_mesh(mesh).values()]))
    w_shard = ArraySpec((devices * rows, cols), f"d_{all_axes(mesh)} f", dtype, "spread")
    return Case(mesh, {"w_shard": w_shard}, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("tp", "dp"))
    rows, cols = (pick(rng, sizes) for sizes in (range(9, 14), range(50, 60)))
    return (
        _case(mesh_of(rng, **{axis: 5, other: 2}), axis, rows, cols, "bfloat16"),
        _case(f"{other}=2,{axis}=6", axis, rows + 4, cols + 8),
        _case(f"{axis}=1,{other}=3", axis, rows + 7, cols),
    )


def _with_small_columns(case: Case, inputs: list[np.ndarray]) -> None:
    """Makes columns of very different magnitudes, and the first one of zeros."""
    (w,) = inputs
    exponents = np.arange(w.shape[1]) % 9 - 6.0
    w *= (10.0**exponents).astype(w.dtype)[None]
    w[:, 0] = 0


def _scale_bytes(sizes: Sizes) -> float:
    """An all-reduce of the largest magnitudes, padded to n equal parts, in the dtype of w."""
    n, (rows, cols) = sizes.n(), sizes.case.args["w_shard"].shape
    devices = int(np.prod([*sizes.case.sizes.values()]))
    item_bytes = sizes.bytes("w_shard") // (rows // devices * cols)
    return 2 * (n - 1) * -(-cols // n) * item_bytes


CONTRACT = Contract(
    kind="program",
    task="return this device's rows in 8 bits, and a scale for each column of all devices",
    reference=quantized.quantize_rows,
    oracle=_rounded,
    law=_law,
    cases=(_case("tp=8", "tp", 24, 512), _case("dp=2,tp=3", "tp", 30, 90)),
    draw=_drawn,
    poison=_with_small_columns,
    communication=Communication(
        "one all-reduce of a number for each column",
        forward=((Limit(("all_reduce",), "axis", _scale_bytes),),),
    ),
    hints=(
        "A scale needs the largest magnitude of a whole column, and a device has only some rows of "
        "it. How much must the devices tell each other?",
        "First take the largest magnitude of each column over your own rows, then the largest of "
        "all devices with lax.pmax.",
        "scales = largest.astype(jnp.float32) / 127; divide w by the scales, or by 1 where they "
        "are 0; jnp.round, then .astype(jnp.int8).",
    ),
    minimal="Every device needs the largest magnitude of every column, one number each. It does "
    "not need to know where it was.",
    harder="A column's scale could be the one with the smallest mean squared error instead. What "
    "would the devices have to send for it?",
)


def _quantized(
    w_shard: Array,
    axis: str,
    *,
    largest: Callable[[Array, str], Array] = lambda w, axis: lax.pmax(jnp.abs(w).max(axis=0), axis),
    most: int = 127,
    rounded: Callable[[Array], Array] = jnp.round,
) -> tuple[Array, Array]:
    """A right answer, of which a mistake changes one step."""
    scales = largest(w_shard, axis).astype(jnp.float32) / most
    codes = rounded(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return codes.astype(jnp.int8), scales


def _largest_here(w: Array) -> Array:
    return jnp.abs(w).max(axis=0)


@wrong("values")
def largest_of_the_shard(w_shard: Array, *, axis: str) -> Any:
    """The scales are those of this device's rows only; a column has one scale on all devices, so
    take the largest of all with lax.pmax."""
    return _quantized(w_shard, axis, largest=lambda w, axis: _largest_here(w))


@wrong("values")
def largest_summed(w_shard: Array, *, axis: str) -> Any:
    """The largest magnitudes of the devices are added; take the largest of them, with lax.pmax."""
    return _quantized(w_shard, axis, largest=lambda w, axis: lax.psum(_largest_here(w), axis))


@wrong("values")
def largest_averaged(w_shard: Array, *, axis: str) -> Any:
    """The largest magnitudes of the devices are averaged; take the largest of them, with
    lax.pmax."""
    return _quantized(w_shard, axis, largest=lambda w, axis: lax.pmean(_largest_here(w), axis))


@wrong("values")
def sign_not_dropped(w_shard: Array, *, axis: str) -> Any:
    """The largest number is taken for the largest magnitude; -5 is larger in magnitude than 3, so
    take jnp.abs first."""
    return _quantized(w_shard, axis, largest=lambda w, axis: lax.pmax(w.max(axis=0), axis))


@wrong("values")
def divided_by_128(w_shard: Array, *, axis: str) -> Any:
    """The largest magnitude becomes 128, which int8 does not have; divide by 127."""
    return _quantized(w_shard, axis, most=128)


@wrong("values")
def divided_by_255(w_shard: Array, *, axis: str) -> Any:
    """The scale divides the range of a column into 255 steps, but magnitudes have 127 on either
    side of 0."""
    return _quantized(w_shard, axis, most=255)


@wrong("values")
def one_scale_for_the_matrix(w_shard: Array, *, axis: str) -> Any:
    """All columns have the scale of the largest, so that a column of small numbers loses its
    digits; give each column its own."""

    def largest(w: Array, axis: str) -> Array:
        return jnp.full_like(w[0], lax.pmax(jnp.abs(w).max(), axis))

    return _quantized(w_shard, axis, largest=largest)


@wrong("values")
def scales_of_rows(w_shard: Array, *, axis: str) -> Any:
    """There is a scale for each row; the rows are what a product sums over, so give each column
    one, with max(axis=0)."""
    scales = jnp.abs(w_shard).max(axis=1).astype(jnp.float32) / 127
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[:, None])
    return codes.astype(jnp.int8), scales


@wrong("values")
def rounded_towards_zero(w_shard: Array, *, axis: str) -> Any:
    """.astype(jnp.int8) cuts the fraction off, and loses up to a whole step; call jnp.round
    first."""
    return _quantized(w_shard, axis, rounded=lambda x: x)


@wrong("values")
def rounded_down(w_shard: Array, *, axis: str) -> Any:
    """Numbers are rounded down, which shifts all of them by half a step; call jnp.round."""
    return _quantized(w_shard, axis, rounded=jnp.floor)


@wrong("values")
def scales_turned_over(w_shard: Array, *, axis: str) -> Any:
    """You return 127 / largest, with which numbers are multiplied to get codes; return its inverse,
    with which codes are multiplied."""
    codes, scales = _quantized(w_shard, axis)
    return codes, jnp.where(scales == 0, 0, 1 / jnp.where(scales == 0, 1, scales))


@wrong("values")
def largest_returned(w_shard: Array, *, axis: str) -> Any:
    """You return the largest magnitudes; the scales are these, divided by 127."""
    codes, scales = _quantized(w_shard, axis)
    return codes, scales * 127


@wrong("values")
def scales_not_in_float32(w_shard: Array, *, axis: str) -> Any:
    """The scales have the dtype of w, and bfloat16 holds three digits of them; return float32."""
    codes, scales = _quantized(w_shard, axis)
    return codes, scales.astype(w_shard.dtype)


@wrong("values")
def divided_in_the_dtype_of_w(w_shard: Array, *, axis: str) -> Any:
    """w is divided in bfloat16, where 100.4 and 100.6 are both 100.5; divide in float32."""
    _, scales = _quantized(w_shard, axis)
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales).astype(w_shard.dtype)[None])
    return codes.astype(jnp.int8), scales


@wrong("values")
def scale_never_small(w_shard: Array, *, axis: str) -> Any:
    """Scales below 1e-5 are raised to it, so that columns of small numbers lose their digits; only
    a scale of 0 must not divide."""
    _, scales = _quantized(w_shard, axis)
    scales = jnp.maximum(scales, 1e-5)
    return jnp.round(w_shard / scales[None]).astype(jnp.int8), scales


@wrong("communication")
def matrix_gathered(w_shard: Array, *, axis: str) -> Any:
    """The rows of all devices are gathered for the scales; each device can take the largest of its
    own rows first, and send one number for each column."""
    codes, scales = _quantized(
        gathered(w_shard, axis), axis, largest=lambda w, axis: _largest_here(w)
    )
    return own_shard(codes, axis), scales


@wrong("communication")
def whole_shard_all_reduced(w_shard: Array, *, axis: str) -> Any:
    """All magnitudes are all-reduced, and the largest of each column is taken then; take the
    largest of your own rows first."""
    return _quantized(w_shard, axis, largest=lambda w, axis: lax.pmax(jnp.abs(w), axis).max(axis=0))


@wrong("communication")
def largest_gathered(w_shard: Array, *, axis: str) -> Any:
    """The largest magnitudes of all devices are gathered: n/2 times the bytes of lax.pmax."""
    return _quantized(
        w_shard, axis, largest=lambda w, axis: lax.all_gather(_largest_here(w), axis).max(axis=0)
    )
