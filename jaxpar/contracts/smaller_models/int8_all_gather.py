"""Rows gathered in 8 bits, with the gradient of a gather that rounds nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.smaller_models.common import first_beyond, place_in
from jaxpar.contracts.steps import Step, among_zeros, enter, gathered, own_shard, scattered
from jaxpar.parallel import quantized
from jaxpar.quantize import dequantize_blocks, quantize_blocks

# Of a step: half of one, with room for scales in 16 bits, and for what float32 loses.
NEAREST = 0.51


def _rounded(w: Array, block: int) -> Array:
    """Each number as the nearest multiple of its block's scale."""
    blocks = w.reshape(len(w), -1, block)
    scales = jnp.abs(blocks).max(axis=-1, keepdims=True) / 127
    return (jnp.round(blocks / jnp.where(scales == 0, 1, scales)) * scales).reshape(w.shape)


def _straight_through(case: Case, w: Array) -> list[Expected]:
    """One right result of several, whose gradient is that of w."""
    return whole_on_all(case, w + lax.stop_gradient(_rounded(w, case.kwargs["block"]) - w))


def _law(case: Case, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str | None:
    """No number is further than half a step away, and all devices have the same."""
    w, y = (np.asarray(array, np.float64) for array in (inputs[0], outputs[0]))
    blocks = np.abs(w).reshape(len(w), -1, case.kwargs["block"]).max(axis=-1)
    steps = (blocks / 127).repeat(case.kwargs["block"], axis=-1)
    rounding = 2.0**-8 * np.abs(w) if inputs[0].dtype == jnp.bfloat16 else 0.0
    bound = np.broadcast_to(NEAREST * steps + rounding, y.shape)
    at = first_beyond(np.abs(y - w), bound)
    if at:
        element = at[len(case.sizes) :]
        return (
            f"{place_in(case, at)} is {y[at]:.6g}, where w has {w[element]:.6g}, and a step of its "
            f"block is {steps[element]:.6g}: rounding to the nearest loses half of one at most"
        )
    # Not bit for bit: a device may multiply its own codes in another order.
    first = y[(0,) * len(case.sizes)]
    at = first_beyond(np.abs(y - first), np.broadcast_to(0.01 * steps + rounding, y.shape))
    if at:
        return (
            f"{place_in(case, at)} is {y[at]:.6g}, and on the first device "
            f"{first[at[len(case.sizes) :]]:.6g}; all devices must have the same matrix"
        )
    return None


def _case(mesh: str, axis: str, rows: int, cols: int, block: int, dtype: str = "float32") -> Case:
    """A case with so many rows on all devices together."""
    w_shard = ArraySpec((rows, cols), f"d_{axis} f", dtype, "peaked")
    return Case(mesh, {"w_shard": w_shard}, {"axis": axis, "block": block})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("fsdp", "dp"))
    rows, blocks = (pick(rng, sizes) for sizes in (range(7, 12), range(3, 6)))
    return (
        _case(mesh_of(rng, **{axis: 6, other: 2}), axis, 6 * rows, 16 * blocks, 16, "bfloat16"),
        _case(f"{other}=2,{axis}=5", axis, 5 * (rows + 2), 40 * blocks, 40),
        _case(f"{axis}=1,{other}=2", axis, rows, 24 * blocks, 24),
    )


def _with_blocks_of_zeros(case: Case, inputs: list[np.ndarray]) -> None:
    """Makes every third block small, and the first one of each row zeros."""
    (w,) = inputs
    blocks = w.reshape(len(w), -1, case.kwargs["block"])
    blocks[:, ::3] *= np.asarray(1e-3, w.dtype)
    blocks[:, 0] = 0


def _wire_bytes(sizes: Sizes) -> float:
    """A byte for each number, and four for each block."""
    numbers = int(np.prod(sizes.case.args["w_shard"].shape)) / sizes.n()
    return (sizes.n() - 1) * numbers * (1 + 4 / sizes.case.kwargs["block"])


_FIRST = _case("fsdp=8", "fsdp", 256, 512, 64)

CONTRACT = Contract(
    kind="program",
    task="gather the rows of all devices in 8 bits, with the gradient of a gather without rounding",
    reference=quantized.int8_all_gather,
    oracle=_straight_through,
    law=_law,
    cases=(_FIRST, _case("dp=2,fsdp=3", "fsdp", 90, 64, 32)),
    draw=_drawn,
    poison=_with_blocks_of_zeros,
    gradient=("w_shard",),
    errors=(
        BadCall(replace(_FIRST, kwargs={"axis": "fsdp", "block": 48}), "512 / 48"),
        BadCall(replace(_FIRST, kwargs={"axis": "fsdp", "block": 1024}), "512 / 1,024"),
    ),
    communication=Communication(
        "an all-gather of integers of 8 bits and of their scales; backward, a reduce-scatter of "
        "the gradient in the dtype of w",
        forward=((Limit(("all_gather",), "axis", _wire_bytes, exact=True),),),
    ),
    imports=(
        "jaxpar.quantize.quantize_blocks",
        "jaxpar.quantize.dequantize_blocks",
    ),
    hints=(
        "Forward, two things travel: codes and scales. Multiply them only after they have arrived, "
        "those of your own rows as well.",
        "The derivative of jnp.round is 0, and JAX would give no gradient. jax.custom_vjp lets you "
        "say what the backward pass does: g.defvjp(forward, backward).",
        "The backward function gets the gradient with respect to the whole matrix, [n*rows, cols], "
        "on each device: return (lax.psum_scatter(gradient, axis, tiled=True),).",
    ),
    minimal="Every number must reach each of the other devices once, in a byte. The gradient is a "
    "sum over devices, of which each keeps its rows.",
    harder="ZeRO++ sends the gradients in 4 bits as well. Why can a reduce-scatter not add codes "
    "on the way, and what does it do instead?",
)


def _gathered(
    w_shard: Array,
    *,
    axis: str,
    block: int,
    whole: Callable[[Array, str, int], Array] | None = None,
    scatter: Step = scattered,
) -> Array:
    """A right answer, of which a mistake changes the forward or the backward pass."""
    make = whole or _by_blocks

    @jax.custom_vjp
    def gather(w: Array) -> Array:
        return make(w.astype(jnp.float32), axis, block).astype(w.dtype)

    gather.defvjp(lambda w: (gather(w), None), lambda _, g: (scatter(g, axis),))
    return gather(w_shard)


def _by_blocks(w: Array, axis: str, block: int) -> Array:
    return dequantize_blocks(*gathered(quantize_blocks(w, block=block, bits=8), axis))


@wrong("values")
def own_scales_for_all(w_shard: Array, **how: Any) -> Array:
    """The codes of all devices are multiplied by this device's scales; send the scales as well."""

    def whole(w: Array, axis: str, block: int) -> Array:
        codes, scales = quantize_blocks(w, block=block, bits=8)
        repeated = jnp.tile(scales, (lax.axis_size(axis), 1))
        return dequantize_blocks(gathered(codes, axis), repeated)

    return _gathered(w_shard, **how, whole=whole)


@wrong("values")
def own_rows_not_rounded(w_shard: Array, **how: Any) -> Array:
    """A device keeps its own rows as they are, and the others get them rounded, so that each device
    computes with another model; use the rounded rows everywhere."""

    def whole(w: Array, axis: str, block: int) -> Array:
        y = _by_blocks(w, axis, block)
        return lax.dynamic_update_slice_in_dim(y, w, lax.axis_index(axis) * len(w), 0)

    return _gathered(w_shard, **how, whole=whole)


@wrong("values")
def one_scale_for_a_shard(w_shard: Array, **how: Any) -> Array:
    """All rows of a device share one scale, so that one large number costs all others their digits;
    each block has its own."""

    def whole(w: Array, axis: str, block: int) -> Array:
        flat = w.reshape(1, -1)
        return _by_blocks(flat, axis, flat.size).reshape(-1, w.shape[1])

    return _gathered(w_shard, **how, whole=whole)


@wrong("values")
def scale_for_each_row(w_shard: Array, **how: Any) -> Array:
    """A whole row shares a scale, whatever `block` is."""
    return _gathered(w_shard, **how, whole=lambda w, axis, block: _by_blocks(w, axis, w.shape[1]))


@wrong("values")
def in_four_bits(w_shard: Array, **how: Any) -> Array:
    """The codes have 4 bits, which lose 18 times as much as 8."""

    def whole(w: Array, axis: str, block: int) -> Array:
        return dequantize_blocks(*gathered(quantize_blocks(w, block=block, bits=4), axis))

    return _gathered(w_shard, **how, whole=whole)


@wrong("values")
def codes_gathered_alone(w_shard: Array, **how: Any) -> Array:
    """You return the codes of all devices; multiply them by their scales."""

    def whole(w: Array, axis: str, block: int) -> Array:
        codes, _ = quantize_blocks(w, block=block, bits=8)
        return gathered(codes, axis)

    return _gathered(w_shard, **how, whole=whole)


@wrong("values")
def rows_of_devices_added(w_shard: Array, **how: Any) -> Array:
    """The rows of the devices are added, or stacked into another dim; they follow one another, as
    lax.all_gather with tiled=True puts them."""

    def whole(w: Array, axis: str, block: int) -> Array:
        y = lax.all_gather(w, axis)
        codes, scales = quantize_blocks(y, block=block, bits=8)
        return dequantize_blocks(codes, scales)

    @jax.custom_vjp
    def gather(w: Array) -> Array:
        return whole(w.astype(jnp.float32), how["axis"], how["block"]).astype(w.dtype)

    gather.defvjp(lambda w: (gather(w), None), lambda _, g: (lax.psum_scatter(g, how["axis"]),))
    return gather(w_shard)


@wrong("values")
def gathered_in_float32(w_shard: Array, **how: Any) -> Array:
    """The result is float32 whatever w is; it has the dtype of w."""
    return _gathered(w_shard.astype(jnp.float32), **how)


@wrong("gradient")
def differentiated_through_rounding(w_shard: Array, *, axis: str, block: int) -> Array:
    """JAX differentiates the rounding, whose derivative is 0, so that hardly anything of the
    gradient is left; leave the rounding out of the backward pass, with jax.custom_vjp."""
    return _by_blocks(w_shard.astype(jnp.float32), axis, block).astype(w_shard.dtype)


@wrong("gradient")
def gradient_of_own_use(w_shard: Array, **how: Any) -> Array:
    """The gradient is that of this device's use of its rows; all devices use them, so sum the
    gradients, with lax.psum_scatter."""
    return _gathered(w_shard, **how, scatter=own_shard)


@wrong("gradient")
def gradient_averaged(w_shard: Array, **how: Any) -> Array:
    """The gradient is divided by the number of devices; a gather does not know whether the loss is
    a mean, so return the sum."""
    return _gathered(
        w_shard, **how, scatter=lambda g, axis: scattered(g, axis) / lax.axis_size(axis)
    )


@wrong("gradient")
def gradient_in_8_bits(w_shard: Array, **how: Any) -> Array:
    """The gradient is rounded to 8 bits before it is sent; here it is sent as it is."""
    block = how["block"]

    def scatter(g: Array, axis: str) -> Array:
        n = lax.axis_size(axis)
        quantized = quantize_blocks(g.astype(jnp.float32), block=block, bits=8)
        arrived = [
            lax.all_to_all(sent.reshape(n, -1, sent.shape[1]), axis, 0, 0) for sent in quantized
        ]
        return dequantize_blocks(*arrived).sum(axis=0).astype(g.dtype)

    return _gathered(w_shard, **how, scatter=scatter)


@wrong("communication")
def rounded_before_but_sent_wide(w_shard: Array, **how: Any) -> Array:
    """What is sent has been rounded, and is floats again; gather codes and scales, and multiply
    them where they arrive."""

    def whole(w: Array, axis: str, block: int) -> Array:
        return gathered(dequantize_blocks(*quantize_blocks(w, block=block, bits=8)), axis)

    return _gathered(w_shard, **how, whole=whole)


@wrong("communication")
def codes_summed_among_zeros(w_shard: Array, **how: Any) -> Array:
    """Codes are padded with zeros and summed, which sends twice the bytes of lax.all_gather."""

    def whole(w: Array, axis: str, block: int) -> Array:
        sent = quantize_blocks(w, block=block, bits=8)
        return dequantize_blocks(*(lax.psum(among_zeros(part, axis), axis) for part in sent))

    # JAX has summed the gradient of what is equal on all devices.
    return _gathered(w_shard, **how, whole=whole, scatter=own_shard)


@wrong("communication")
def gradient_all_reduced(w_shard: Array, **how: Any) -> Array:
    """The gradient is all-reduced, and each device keeps its rows: twice the bytes of
    lax.psum_scatter."""
    return _gathered(
        w_shard, **how, scatter=lambda g, axis: own_shard(enter(lax.psum(g, axis), axis), axis)
    )


@wrong("communication")
def gradient_of_a_gather_of_floats(w_shard: Array, *, axis: str, block: int) -> Array:
    """The straight-through gradient comes from w - stop_gradient(w), gathered as floats, which
    sends all that the codes save; give the backward pass by jax.custom_vjp."""
    fixed = lax.stop_gradient(w_shard)
    y = _by_blocks(fixed.astype(jnp.float32), axis, block).astype(w_shard.dtype)
    return y + gathered(w_shard - fixed, axis)


@wrong("errors")
def blocks_over_row_ends(w_shard: Array, **how: Any) -> Array:
    """Blocks are cut from all numbers of a device one after the other, so that `block` need not
    divide a row, and no bad one is refused; raise ValueError, as quantize_blocks does."""

    def whole(w: Array, axis: str, block: int) -> Array:
        flat = w.reshape(-1)
        codes, scales = quantize_blocks(jnp.pad(flat, (0, -flat.size % block)), block=block, bits=8)
        parts = lax.all_gather(codes, axis), lax.all_gather(scales, axis)
        return dequantize_blocks(*parts)[:, : flat.size].reshape(-1, w.shape[1])

    return _gathered(w_shard, **how, whole=whole)
