"""Tensor parallelism: of every matrix in a layer each device of the axis holds 1/n.

The first matrix of a block is split by columns, the last by rows. What lies between (heads, the
hidden size of an MLP) is split, too; x is equal on all devices where it enters and where it leaves.
"""

from typing import Any

import jax
from jax import Array, lax
from jax.sharding import PartitionSpec
from jax.tree_util import keystr, tree_map_with_path
from jaxtyping import Float, PyTree, Shaped

from jaxpar import nn
from jaxpar.mesh import Axis, divide, few_divisors

COLUMNS = ("query", "key", "value", "gate", "up")
ROWS = ("output", "down")


def enter(x: Shaped[Array, "..."], *, axis: str) -> Shaped[Array, "..."]:
    """x, from here on used by every device for itself; Megatron's f.

    Without it JAX does the same at each use, and sends as often in the backward pass.

    Math: y = x
    Comm:
        forward: nothing
        backward: all_reduce(axis) x
    Memory: x
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3
    """
    return lax.pcast(x, axis, to="varying")


def column_linear(
    x: Float[Array, "*b d"],
    w: Float[Array, "d f"],
    b: Float[Array, " f"] | None = None,
    *,
    axis: str,
) -> Float[Array, "*b f"]:
    """This device's columns of x times a matrix: w and b are its part, x is equal on all.

    Math: y = x @ w + b, where [w_1, ..., w_n] is the whole matrix
    Comm:
        forward: nothing
        backward: all_reduce(axis) x
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3
    """
    y = nn.matmul(enter(x, axis=axis), w)
    return y if b is None else y + _over(y, b)


def row_linear(
    x: Float[Array, "*b f"],
    w: Float[Array, "f d"],
    b: Float[Array, " d"] | None = None,
    *,
    axis: str,
) -> Float[Array, "*b d"]:
    """The product of x and a matrix, on every device: x is its columns, w its rows, b whole.

    Math: y = sum_j x_j @ w_j + b
    Comm:
        forward: all_reduce(axis) y
        backward: nothing
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3
    """
    y = lax.psum(nn.matmul(x, w), axis)
    return y if b is None else y + _over(y, b)  # after the sum, which would add it n times


def parallel_mlp(
    x: Float[Array, "b t d"], w_up: Float[Array, "d f"], w_down: Float[Array, "f d"], *, axis: str
) -> Float[Array, "b t d"]:
    """The MLP of GPT, each device with its part of the hidden size f.

    Math: y = sum_j gelu(x @ w_up_j) @ w_down_j
    Comm:
        forward: all_reduce(axis) x
        backward: all_reduce(axis) x
    Memory: x
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3
    """
    return row_linear(nn.gelu(column_linear(x, w_up, axis=axis)), w_down, axis=axis)


def parallel_swiglu(
    x: Float[Array, "b t d"],
    w_gate: Float[Array, "d f"],
    w_up: Float[Array, "d f"],
    w_down: Float[Array, "f d"],
    *,
    axis: str,
) -> Float[Array, "b t d"]:
    """The gated MLP of Llama, each device with its part of the hidden size f.

    x is equal on all devices of the axis, and typed so, and so is the result. Of the three whole
    matrices, `w_gate` and `w_up` are this device's columns, `w_down` its rows.

    Math: y = sum_j (silu(x @ w_gate_j) * (x @ w_up_j)) @ w_down_j
    Comm:
        forward: all_reduce(axis) x
        backward: all_reduce(axis) x
    Memory: x
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3; Shazeer 2020 (GLU Variants)
    """
    x = enter(x, axis=axis)
    hidden = nn.swiglu(nn.matmul(x, w_gate), nn.matmul(x, w_up))
    return lax.psum(nn.matmul(hidden, w_down), axis)


def own_kv_heads(w: Float[Array, "d o"], num_kv_heads: int, *, axis: str) -> Float[Array, "d p"]:
    """This device's columns of w_k or w_v, of which it holds its part, or all if heads are few.

    With fewer kv heads than devices the n/num_kv_heads neighbours whose query heads share a kv head
    use the same columns. Their gradients are summed where the whole matrix is used.

    Math: y = w if num_kv_heads >= n, else the columns of head i*num_kv_heads//n on device i
    Comm:
        forward: nothing
        backward: all_reduce(axis) few*w
    Memory: y
    Source: Ainslie et al. 2023 (GQA), section 2.2; Shazeer 2019 (multi-query attention)
    """
    n = lax.axis_size(axis)
    if num_kv_heads >= n:
        return w
    d_head = w.shape[1] // num_kv_heads
    head = lax.axis_index(axis) * num_kv_heads // n
    return lax.dynamic_slice_in_dim(w, head * d_head, d_head, axis=1)


def parallel_attention(
    x: Float[Array, "b t d"],
    w_q: Float[Array, "d q"],
    w_k: Float[Array, "d k"],
    w_v: Float[Array, "d k"],
    w_o: Float[Array, "q d"],
    *,
    num_heads: int,
    num_kv_heads: int,
    axis: str,
) -> Float[Array, "b t d"]:
    """Causal attention, each device with its part of the heads; no bias, scale 1/sqrt(h).

    x is equal on all devices of the axis, and typed so, and so is the result. The columns of `w_q`,
    `w_k`, `w_v`, and the rows of `w_o`, are head after head, h each; this device holds those of its
    heads. Each kv head serves num_heads/num_kv_heads query heads, one after another. If there are
    fewer kv heads than devices, `w_k` and `w_v` arrive whole, and device i uses head
    i*num_kv_heads//n.

    Math: y = sum_j concat(softmax(q k^T / sqrt(h) + causal mask) v for each head of device j) @ w_o
    Comm:
        forward: all_reduce(axis) x
        backward: all_reduce(axis) x+few*(w_k+w_v)
    Memory: x
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3; Ainslie et al. 2023 (GQA), section 2.2

    Raises:
        ValueError: n does not divide `num_heads`; of `num_kv_heads` and n neither divides the
            other.
    """
    check_heads("parallel_attention", num_heads, num_kv_heads, axis, lax.axis_size(axis))
    x = enter(x, axis=axis)
    w_k, w_v = (own_kv_heads(w, num_kv_heads, axis=axis) for w in (w_k, w_v))
    local_heads = num_heads // lax.axis_size(axis)
    d_head = w_q.shape[1] // local_heads
    q, k, v = (
        nn.matmul(x, w).reshape(*x.shape[:2], -1, d_head).swapaxes(1, 2) for w in (w_q, w_k, w_v)
    )
    gathered = nn.attention(q, k, v).swapaxes(1, 2).reshape(*x.shape[:2], -1)
    return lax.psum(nn.matmul(gathered, w_o), axis)


def check_heads(where: str, heads: int, kv_heads: int, axis: Axis, n: int) -> None:
    """Whether n devices can share so many heads.

    Comm:
        forward: nothing
        backward: no derivative
    Memory: 0
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3

    Raises:
        ValueError: n does not divide the heads; of kv heads and n neither divides the other.
    """
    divide(where, "a", heads, axis, n)
    if kv_heads % n and n % kv_heads:
        raise ValueError(
            f"{where}: {kv_heads} kv heads on mesh axis {axis} (size {n}); one must divide the "
            f"other, so that a device uses whole kv heads, or one; use {axis} in "
            f"{{{few_divisors(kv_heads)}}}, or a multiple of {kv_heads}"
        )


def dropout(
    x: Float[Array, "..."], rate: float, *, axis: str | None, key: Array
) -> Float[Array, "..."]:
    """A copy of x, a share `rate` of its elements set to zero at random, the others made larger.

    The key is equal on all devices of the axis. With `axis=None` so is the mask: for what is equal
    on all. With an axis each device draws a mask of its own: for what is split over it.

    Math: y = x*mask/(1 - rate), mask = 0 with probability rate
    Comm:
        forward: nothing
        backward: nothing
    Memory: x
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 and appendix B.2
    """
    if axis is not None:
        key = jax.random.fold_in(key, lax.axis_index(axis))
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return x * kept.astype(x.dtype) / (1 - rate)


def megatron_specs(params: PyTree[Any], *, axis: str) -> PyTree[PartitionSpec]:
    """How a layer's matrices lie on the mesh, for the compiler to split a one-device program.

    `params` is a dict of dicts; the name of a leaf says what it is. `query`, `key`, `value`, `gate`
    and `up` are split by columns, `output` and `down` by rows; what has another name is whole.
    Leaves have a shape; stacked ones are [l, d, f], and dim l is not split. The result is the same
    pytree, with a partition spec for each leaf.

    Math: a device holds 1/n of each matrix: w[..., f_i] of columns, w[..., f_i, :] of rows
    Comm:
        forward: nothing
        backward: no derivative
    Memory: params/n
    Source: Xu et al. 2021 (GSPMD), section 4.1 (transformers); Shoeybi et al. 2019, section 3
    """

    def lie(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
        name = keystr(path[-1:], simple=True)
        if name in COLUMNS:
            return PartitionSpec(*[None] * (len(leaf.shape) - 1), axis)
        if name in ROWS:
            return PartitionSpec(*[None] * (len(leaf.shape) - 2), axis)
        return PartitionSpec()

    return tree_map_with_path(lie, params)


def _over(y: Array, bias: Array) -> Array:
    """The bias [d] in as many dims as y."""
    return bias.reshape((1,) * (y.ndim - 1) + bias.shape)
