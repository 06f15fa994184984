"""Adapters: a trained model is frozen, and a few new parameters beside it are trained.

The frozen parameters are the base. They have no gradient and no state of an optimizer, so nothing
is reduced for them, and they may be stored in few bits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PyTree, UInt8

from jaxpar import nn
from jaxpar.flash import attend
from jaxpar.mesh import vary_alike
from jaxpar.quantize import nf4_dequantize


def lora_linear(
    x: Float[Array, "*b d"],
    w: Float[Array, "d f"],
    a: Float[Array, "d r"],
    b: Float[Array, "r f"],
    *,
    scale: float,
) -> Float[Array, "*b f"]:
    """Multiplies x by w, and adds the product with a matrix of low rank, a @ b, in two thin steps.

    b is zero before the first step, so that training begins with the model as it was. Where w is
    split by columns over the devices of an axis, b is split in the same way, a is whole, and x is
    typed as varying: then only the gradients of x and a are summed.

    Math: y = x @ w + scale * (x @ a) @ b
    Comm:
        forward: nothing
        backward: nothing
    Memory: y
    Source: Hu et al. 2021 (LoRA), section 4.1
    """
    return nn.matmul(x, w) + nn.matmul(scale * nn.matmul(x, a), b)


def lora_row_linear(
    x: Float[Array, "*b f_tp"],
    w: Float[Array, "f_tp d"],
    a: Float[Array, "f_tp r"],
    b: Float[Array, "r d"],
    *,
    axis: str,
    scale: float,
) -> Float[Array, "*b d"]:
    """A product with a matrix that is split by rows, with an adapter: one all-reduce for both.

    This device has its columns of x, and the same rows of w and a. b is equal on all devices, and
    typed so, and so is the result.

    Math: y = sum_j (x_j @ w_j + scale * (x_j @ a_j) @ b)
    Comm:
        forward: all_reduce(axis) y
        backward: all_reduce(axis) b
    Memory: y
    Source: Hu et al. 2021 (LoRA), section 4.1; Shoeybi et al. 2019 (Megatron-LM), section 3
    """
    return lax.psum(lora_linear(x, w, a, b, scale=scale), axis)


def merge(
    w: Float[Array, "d f"], a: Float[Array, "d r"], b: Float[Array, "r f"], *, scale: float
) -> Float[Array, "d f"]:
    """The matrix that does alone what w and its adapter do together.

    It works on shards as well: where w is split by columns, b is; where it is split by rows, a is.

    Math: y = w + scale * a @ b
    Comm:
        forward: nothing
        backward: nothing
    Memory: w
    Source: Hu et al. 2021 (LoRA), section 4.1
    """
    return w + ((scale * a) @ b).astype(w.dtype)


def nf4_linear(
    x: Float[Array, "*b d"],
    packed: UInt8[Array, "d half"],
    largest: Float[Array, "d blocks"],
    *,
    block: int,
) -> Float[Array, "*b f"]:
    """Multiplies x by a frozen matrix of 4-bit codes, of which few columns at a time are numbers.

    `nf4_quantize(w, block=block)` made `packed` and `largest` of the matrix w, [d, f]. The columns
    of one block after the other are turned into numbers, used, and dropped, and once more in the
    backward pass. x has a gradient, and the matrix has none: that of `largest` is 0. The result has
    the dtype of x.

    Math: y = x @ nf4_dequantize(packed, largest)
    Comm:
        forward: nothing
        backward: nothing
    Memory: y
    Source: Dettmers et al. 2023 (QLoRA), section 3, equations 5 and 6

    Raises:
        ValueError: `packed`, `largest` and `block` do not fit one another, or `block` is odd.
    """
    _check_blocks(packed, largest, block)
    # Cast here and not in the loop, where the gradient of x would be summed once for each block.
    x, packed, largest = vary_alike(x, packed, largest)
    y: Array = _product_by_columns(x.reshape(-1, x.shape[-1]), packed, largest, block)
    return y.reshape(*x.shape[:-1], -1)


def adapter_gradients(
    loss_fn: Callable[[Any, Any, Any], Array],
    base: PyTree[Array],
    adapters: PyTree[Array],
    batch: PyTree[Array],
    *,
    axis: str,
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The loss and its gradient with respect to the adapters, both averaged over the devices.

    `loss_fn(base, adapters, batch)` is the mean loss of the examples in `batch`, which is this
    device's shard of all examples. `base` and `adapters` are equal on all devices of the axis, and
    typed so. `base` is frozen: no gradient with respect to it is computed or sent. Each gradient
    has the dtype of its adapter.

    Math: loss = (sum_j loss_fn(base, adapters, batch_j)) / n; gradient = d loss / d adapters
    Comm:
        forward: all_reduce(axis) adapters+1
        backward: no derivative
    Memory: adapters+1
    Source: Hu et al. 2021 (LoRA), section 4.2; Li et al. 2020 (PyTorch Distributed), section 3.2
    """
    # Without the cast, JAX would insert an all-reduce of the gradients where it differentiates.
    adapters = lax.pcast(adapters, axis, to="varying")
    loss, gradients = jax.value_and_grad(loss_fn, argnums=1)(base, adapters, batch)
    return lax.pmean((loss, gradients), axis)


def fsdp_lora_apply(
    layer_fn: Callable[[Any, Any, Array], Array],
    base_shards: PyTree[Array],
    adapters: PyTree[Array],
    x: Float[Array, "..."],
    *,
    axis: str,
) -> Float[Array, "..."]:
    """Applies layer after layer; each gathers its frozen base before its use, backward as well.

    `layer_fn(base, adapter, x) -> x` takes one layer's whole base and its adapter. Both are
    stacked: a leaf of `base_shards` is [l, s, ...], and holds this device's part of dim s, in the
    order of the devices; a leaf of `adapters` is [l, ...], and equal on all devices. Leaves of the
    base may be codes of few bits, and are gathered as they are. x is this device's shard of the
    batch, and so is the result. The gradient with respect to the base is 0, and nothing is sent for
    it. That of the adapters is summed over the devices, once for all layers.

    Math: x_(i+1) = layer_fn(base[i], adapters[i], x_i); base[i] = [shards_1[i], ..., shards_n[i]]
    Comm:
        forward: all_gather(axis) base_shards
        backward: all_gather(axis) base_shards + all_reduce(axis) adapters
    Memory: x
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3; Hu et al. 2021 (LoRA), section 4.2
    """
    base_shards = lax.stop_gradient(base_shards)
    # Cast here and not in the loop, where each use of each leaf would send an all-reduce.
    adapters = lax.pcast(adapters, axis, to="varying")

    def body(x: Array, layer: tuple[Any, Any]) -> tuple[Array, None]:
        shards, adapter = layer
        return layer_fn(lax.all_gather(shards, axis, tiled=True), adapter, x), None

    # Without the checkpoint, all gathered layers would be kept for the backward pass.
    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, (base_shards, adapters))[0]


def prefix_attention(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k t h"],
    v: Float[Array, "b k t h"],
    prefix_k: Float[Array, "k p h"],
    prefix_v: Float[Array, "k p h"],
) -> Float[Array, "b a t h"]:
    """Causal attention in which every query also sees p learned keys and values before the first.

    Queries and keys have been rotated by their positions, from 0; the prefix has no positions, and
    is used as it is. Each of the k kv heads serves a/k consecutive query heads. Every example has
    the same prefix. The result has the dtype of q.

    Math: y_t = softmax_s(q_t @ [prefix_k, k_1, ..., k_t]_s / sqrt(h)) @ [prefix_v, v_1, ..., v_t]
    Comm:
        forward: nothing
        backward: nothing
    Memory: y
    Source: Li and Liang 2021 (Prefix-Tuning), section 4.1; Liu et al. 2022 (P-Tuning v2), section 3
    """
    # Before the prefix is repeated for each example: otherwise, where examples are split, a
    # gradient of all these copies would be summed.
    q, k, v, prefix_k, prefix_v = vary_alike(q, k, v, prefix_k, prefix_v)
    keys, values = map(_after, (prefix_k, prefix_v), (k, v))
    t, p = q.shape[2], prefix_k.shape[1]
    seen = jnp.tril(jnp.ones((1, t, p + t), bool), p)
    return attend(q, keys, values, seen)[0].astype(q.dtype)


def _after(prefix: Float[Array, "k p h"], x: Float[Array, "b k t h"]) -> Float[Array, "b k s h"]:
    repeated = jnp.broadcast_to(prefix[None], (len(x), *prefix.shape))
    return jnp.concatenate([repeated.astype(x.dtype), x], axis=2)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _product_by_columns(x: Array, packed: Array, largest: Array, block: int) -> Array:
    def fill(i: Array, y: Array) -> Array:
        product = x @ _columns(packed, largest, i, block, x.dtype)
        return lax.dynamic_update_slice_in_dim(y, product, i * block, axis=1)

    blocks = largest.shape[1]
    return lax.fori_loop(0, blocks, fill, jnp.zeros_like(x, shape=(len(x), blocks * block)))


def _keep_codes(x: Array, packed: Array, largest: Array, block: int) -> tuple[Array, Any]:
    return _product_by_columns(x, packed, largest, block), (packed, largest)


def _gradient_by_columns(block: int, kept: Any, g: Array) -> tuple[Array, None, None]:
    packed, largest = kept

    def add(i: Array, total: Array) -> Array:
        columns = _columns(packed, largest, i, block, g.dtype)
        return total + lax.dynamic_slice_in_dim(g, i * block, block, axis=1) @ columns.T

    # In float32 at least: one rounding to 16 bits for each block would be many.
    wide = jnp.promote_types(g.dtype, jnp.float32)
    zeros = jnp.zeros_like(g, shape=(len(g), len(packed)), dtype=wide)
    return lax.fori_loop(0, largest.shape[1], add, zeros).astype(g.dtype), None, None


_product_by_columns.defvjp(_keep_codes, _gradient_by_columns)


def _columns(packed: Array, largest: Array, i: Array, block: int, dtype: Any) -> Array:
    """The numbers of the i-th block of every row, [d, block]."""
    codes = lax.dynamic_slice_in_dim(packed, i * (block // 2), block // 2, axis=1)
    return nf4_dequantize(codes, lax.dynamic_slice_in_dim(largest, i, 1, axis=1)).astype(dtype)


def _check_blocks(packed: Array, largest: Array, block: int) -> None:
    """Checks that codes and blocks fit.

    Raises:
        ValueError: `packed`, `largest` and `block` do not fit one another, or `block` is odd.
    """
    if block < 2 or block % 2:
        raise ValueError(f"nf4_linear: block is {block}; two codes share a byte; use an even one")
    (d, half), blocks = packed.shape, largest.shape
    if half * 2 % block or blocks != (d, half * 2 // block):
        raise ValueError(
            f"nf4_linear: {half} bytes in each of {d} rows are {2 * half} codes in blocks of "
            f"{block}, and the largest of each block is {list(blocks)}; one number for each full "
            "block of each row is allowed; use the block that the matrix was quantized with"
        )
