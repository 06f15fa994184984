"""Tensor parallelism: every matrix of a layer is split over the devices of the axis.

The first matrix of a block is split by columns and the last by rows, so the heads or the hidden
size between them are split too. x is equal on all devices where it enters a block and where it
leaves.

In the sizes of `Comm:`, `few` is 1 if there are fewer kv heads than devices, and 0 otherwise.
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
    """Types x as varying, so that each device uses its own copy; this is Megatron's f.

    Without it, JAX does the same at each use of x, and sends an all-reduce for each of them in the
    backward pass.

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
    w: Float[Array, "d f_tp"],
    b: Float[Array, " f_tp"] | None = None,
    *,
    axis: str,
) -> Float[Array, "*b f_tp"]:
    """Multiplies x, which is equal on all devices, by this device's columns w, and adds its bias b.

    Math: y = x @ w + b, where [w_1, ..., w_n] is the full matrix
    Comm:
        forward: nothing
        backward: all_reduce(axis) x
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3
    """
    y = nn.matmul(enter(x, axis=axis), w)
    return y if b is None else y + nn.expand_to(y, b)


def row_linear(
    x: Float[Array, "*b f_tp"],
    w: Float[Array, "f_tp d"],
    b: Float[Array, " d"] | None = None,
    *,
    axis: str,
) -> Float[Array, "*b d"]:
    """Multiplies this device's columns x by its rows w, and sums the products over the devices.

    The result is equal on all devices. The bias b is replicated.

    Math: y = sum_j x_j @ w_j + b
    Comm:
        forward: all_reduce(axis) y
        backward: nothing
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3
    """
    y = lax.psum(nn.matmul(x, w), axis)
    return y if b is None else y + nn.expand_to(y, b)  # after the sum, which would add it n times


def parallel_mlp(
    x: Float[Array, "b t d"],
    w_up: Float[Array, "d f_tp"],
    w_down: Float[Array, "f_tp d"],
    *,
    axis: str,
) -> Float[Array, "b t d"]:
    """The MLP of GPT, with the hidden size f split over the devices.

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
    w_gate: Float[Array, "d f_tp"],
    w_up: Float[Array, "d f_tp"],
    w_down: Float[Array, "f_tp d"],
    *,
    axis: str,
) -> Float[Array, "b t d"]:
    """The gated MLP of Llama, with the hidden size f split over the devices.

    x is equal on all devices of the axis, and typed so, and so is the result. `w_gate` and `w_up`
    are this device's columns of the full matrices, and `w_down` is its rows.

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
    """The columns of w_k or w_v that this device uses.

    If there are at least n kv heads, w is sharded, and the device uses all of its shard. If there
    are fewer, w is the full matrix, and the n/num_kv_heads neighbours whose query heads have the
    same kv head use the same columns; their gradients are summed.

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
    w_q: Float[Array, "d q_tp"],
    w_k: Float[Array, "d k"],
    w_v: Float[Array, "d k"],
    w_o: Float[Array, "q_tp d"],
    *,
    num_heads: int,
    num_kv_heads: int,
    axis: str,
) -> Float[Array, "b t d"]:
    """Causal attention with the heads split over the devices; no bias, and a scale of 1/sqrt(h).

    x is equal on all devices of the axis, and typed so, and so is the result. In the columns of
    `w_q`, `w_k` and `w_v`, and in the rows of `w_o`, the heads follow one another, with h columns
    or rows each; this device holds those of its own heads. Each kv head serves
    num_heads/num_kv_heads consecutive query heads. If there are fewer kv heads than devices, `w_k`
    and `w_v` are replicated, and device i uses head i*num_kv_heads//n.

    Math: y = sum_j concat(softmax(q k^T / sqrt(h) + causal mask) v for each head of device j) @ w_o
    Comm:
        forward: all_reduce(axis) x
        backward: all_reduce(axis) x+few*(w_k+w_v)
    Memory: x
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3; Ainslie et al. 2023 (GQA), section 2.2

    Raises:
        ValueError: n does not divide `num_heads`, or neither of `num_kv_heads` and n divides the
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
    """Checks that this number of heads can be split over n devices.

    Source: Shoeybi et al. 2019 (Megatron-LM), section 3

    Raises:
        ValueError: n does not divide `heads`, or neither of `kv_heads` and n divides the other.
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
    """Sets each element of x to zero with probability `rate`, and scales the others up.

    The key is equal on all devices. With `axis=None` the mask is equal on all devices too, as it
    must be for a replicated x. With an axis, each of its devices draws a mask of its own, as it
    must for an x that is split over the axis.

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
    """Partition specs with which the compiler makes tensor parallelism out of a one-device program.

    `params` is a dict of dicts, to any depth, in which the last name, that of a leaf, says what it
    is. `query`, `key`, `value`, `gate` and `up` are split by columns, `output` and `down` by rows,
    and a leaf with any other name is replicated. Leaves have a shape; stacked ones are [l, d, f],
    and dim l is not split. The result is the same pytree, with a partition spec for each leaf.

    Math: a device holds 1/n of each matrix: w[..., f_i] if it is split by columns, w[..., f_i, :]
        if by rows
    Memory: params/n
    Source: Xu et al. 2021 (GSPMD), section 4.1 (transformers); Shoeybi et al. 2019, section 3
    """

    def spec(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
        name = keystr(path[-1:], simple=True)
        if name in COLUMNS:
            return PartitionSpec(*[None] * (len(leaf.shape) - 1), axis)
        if name in ROWS:
            return PartitionSpec(*[None] * (len(leaf.shape) - 2), axis)
        return PartitionSpec()

    return tree_map_with_path(spec, params)
