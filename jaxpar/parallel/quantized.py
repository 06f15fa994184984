"""Weights in 8 bits that are split over devices: rounded, multiplied, looped over and gathered.

A matrix is kept as 8-bit integers, its *codes*, and as scales in float32, with which the codes are
multiplied. In the sizes of `Comm:`, an element is four bytes, so N codes are N/4 elements.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Float32, Int8, PyTree

from jaxpar.quantize import dequantize_blocks, quantize_blocks

LayerFn = Callable[[Any, Array], Array]


def quantize_rows(
    w_shard: Float[Array, "rows cols"], *, axis: str
) -> tuple[Int8[Array, "rows cols"], Float32[Array, " cols"]]:
    """Rounds this device's rows of a matrix to 8-bit integers, with a scale for each whole column.

    The rows of the matrix are split over the devices, and a column has one scale on all of them, so
    that products with different rows can be added before they are scaled. The largest magnitude of
    a column, on whichever device it is, becomes 127. Each number is rounded to the nearest multiple
    of the scale. The codes of a column of zeros are 0, and its scale is 0. w may have any float
    dtype; the largest magnitudes are sent in that dtype, and the scales are float32.

    Math: scale_k = max_i |w_ik| / 127 over the rows i of all devices;
        code_ik = round(w_ik / scale_k)
    Comm:
        forward: all_reduce(axis) cols
        backward: no derivative
    Memory: w_shard/4+cols
    Source: Dettmers et al. 2022 (LLM.int8()), section 3.1; Shoeybi et al. 2019 (Megatron-LM),
        section 3
    """
    largest = lax.pmax(jnp.abs(w_shard).max(axis=0), axis)
    scales = largest.astype(jnp.float32) / 127
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return codes.astype(jnp.int8), scales


def int8_row_linear(
    x: Float[Array, "t d"],
    codes: Int8[Array, "d f"],
    scales: Float32[Array, " f"],
    *,
    axis: str,
    width: int,
) -> Float[Array, "t f"]:
    """Multiplies this device's columns of x by its rows of an 8-bit matrix, and sums over devices.

    `codes` and `scales` are those of `quantize_rows`. The matrix is in 8 bits because memory is
    short, so it is never held whole as floats: `width` columns are converted to the dtype of x at a
    time. A column has the same scale on all devices, so that the sum is scaled, once, and no
    matrix. Products, sums and the result have the dtype of x. The result is equal on all devices.

    Math: y_tk = scale_k * sum_j (x_j @ code_j)_tk
    Comm:
        forward: all_reduce(axis) y
        backward: nothing
    Memory: y
    Source: Dettmers et al. 2022 (LLM.int8()), section 3.1; Shoeybi et al. 2019 (Megatron-LM),
        section 3

    Raises:
        ValueError: `width` does not divide the columns.
    """
    columns = codes.shape[1]
    if width < 1 or columns % width:
        raise ValueError(
            f"int8_row_linear: {columns} columns, {width} at a time; slices must be full; "
            "use a width that divides the columns"
        )

    def product(first: Array) -> Array:
        return x @ lax.dynamic_slice_in_dim(codes, first, width, axis=1).astype(x.dtype)

    slices = lax.map(product, jnp.arange(0, columns, width))  # [f/width, t, width]
    y_partial = jnp.swapaxes(slices, 0, 1).reshape(len(x), columns)
    return lax.psum(y_partial, axis) * scales.astype(x.dtype)[None]


def quantized_layers(
    layer_fn: Callable[[Any, Array], Array],
    codes: PyTree[Int8[Array, "l _ _"]],
    scales: PyTree[Float32[Array, "l _"]],
    x: Float[Array, "..."],
) -> Float[Array, "..."]:
    """Applies layers of 8-bit matrices, each of which is floats only while its layer is computed.

    `layer_fn(params, x) -> x` takes the matrices of one layer as floats. `codes` is the same pytree
    with the codes of all layers, and `scales` has a scale for each column of each matrix. A matrix
    is codes * scales, in the dtype of x. In the backward pass it is made once more, so that there,
    too, no more than one layer is floats. The gradient with respect to x is the exact one of these
    layers; codes have none.

    Math: x_(i+1) = layer_fn(codes[i] * scales[i], x_i)
    Comm:
        forward: nothing
        backward: nothing
    Memory: x
    Source: Dettmers et al. 2023 (QLoRA), section 3
    """

    def layer(x: Array, matrices: tuple[Any, Any]) -> tuple[Array, None]:
        return layer_fn(jax.tree.map(partial(_columns, dtype=x.dtype), *matrices), x), None

    # Without the checkpoint, the floats of all layers would be kept for the backward pass.
    return lax.scan(jax.checkpoint(layer, prevent_cse=False), x, (codes, scales))[0]


def int8_all_gather(
    w_shard: Float[Array, "rows cols"], *, axis: str, block: int
) -> Float[Array, "n_rows cols"]:
    """Gathers the rows of all devices in 8 bits; the gradient is summed and scattered as it is.

    Each device rounds its rows in blocks of `block` numbers, with `quantize_blocks`, and sends
    codes and scales. All devices make the same matrix of them: the rows of a device are rounded on
    that device, too. Rounding and scales are in float32; the result has the dtype of w.

    The derivative of rounding is 0 almost everywhere, so it is left out (a *straight-through*
    gradient): the gradient is that of a gather without rounding. It is sent in the dtype of w,
    because the errors of many small gradients would add up.

    Math: y = [round_1(w_1), ..., round_n(w_n)]; dL/dw_i = sum_j (dL/dy)_j, rows of device i
    Comm:
        forward: all_gather(axis) w_shard/4+w_shard/block
        backward: reduce_scatter(axis) w_shard*n
    Memory: w_shard*n
    Source: Wang et al. 2023 (ZeRO++), section 3.1 (qwZ); Bengio et al. 2013, section 4

    Raises:
        ValueError: `block` does not divide the columns.
    """

    @jax.custom_vjp
    def gather(w: Array) -> Array:
        quantized = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        codes, scales = lax.all_gather(quantized, axis, tiled=True)
        return dequantize_blocks(codes, scales).astype(w.dtype)

    def scatter(_: None, gradient: Array) -> tuple[Array]:
        return (lax.psum_scatter(gradient, axis, tiled=True),)

    gather.defvjp(lambda w: (gather(w), None), scatter)
    return gather(w_shard)


def _columns(codes: Array, scales: Array, dtype: Any) -> Array:
    """The matrix that codes and the scales of its columns stand for."""
    return (codes.astype(scales.dtype) * scales[None]).astype(dtype)
