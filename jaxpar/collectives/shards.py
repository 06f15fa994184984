"""Sharded pytrees: how leaves are split over an axis, gathered, and reduced.

One dim of each leaf is split: the first one whose size the number of devices divides, or else the
largest one, padded with zeros. Scalars and empty leaves are replicated. Gathering a leaf removes
its padding.
"""

from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree, Shaped


def split_dim(shape: tuple[int, ...], n: int) -> int | None:
    """The dim along which n devices split a leaf of this shape; None if they replicate it.

    Source: Zhao et al. 2023 (PyTorch FSDP), section 4.2, which splits dim 0
    """
    if not shape or 0 in shape:
        return None
    divided = (dim for dim, size in enumerate(shape) if size % n == 0)
    return next(divided, shape.index(max(shape)))


def shard_specs(like: PyTree[Any], *, axis: str, n: int) -> PyTree[P]:
    """The partition spec of each leaf of a pytree that is sharded over an axis of n devices.

    Source: Rajbhandari et al. 2020 (ZeRO), section 5
    """
    return jax.tree.map(lambda leaf: _spec(split_dim(leaf.shape, n), axis), like)


def pad_shards(tree: PyTree[Array], *, n: int) -> PyTree[Array]:
    """Pads full leaves with zeros, so that n divides the size of the dim that is split.

    Comm:
        forward: nothing
        backward: nothing
    Memory: tree
    Source: Rajbhandari et al. 2020 (ZeRO), section 5
    """
    return jax.tree.map(partial(_pad, n=n), tree)


def own_shards(tree: PyTree[Array], *, axis: str) -> PyTree[Array]:
    """Takes this device's shard of leaves that it holds in full.

    Math: y = x[i] on device i, of n equal parts
    Comm:
        forward: nothing
        backward: nothing
    Memory: tree/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.1
    """
    n = lax.axis_size(axis)

    def own(leaf: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        dim = split_dim(leaf.shape, n)
        if dim is None:
            return leaf
        size = -(-leaf.shape[dim] // n)
        return lax.dynamic_slice_in_dim(_pad(leaf, n), lax.axis_index(axis) * size, size, dim)

    return jax.tree.map(own, tree)


def sum_shards(tree: PyTree[Array], *, axis: str) -> PyTree[Array]:
    """Sums the leaves over the devices, and gives each device its shard of the sum.

    Math: y = sum_j x_j[i] on device i, of n equal parts
    Comm:
        forward: reduce_scatter(axis) tree
        backward: all_gather(axis) tree/n
    Memory: tree/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.2
    """
    n = lax.axis_size(axis)

    def total(leaf: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        dim = split_dim(leaf.shape, n)
        if dim is None:
            return lax.psum(leaf, axis)
        return lax.psum_scatter(_pad(leaf, n), axis, scatter_dimension=dim, tiled=True)

    return jax.tree.map(total, tree)


def mean_shards(tree: PyTree[Array], *, axis: str) -> PyTree[Array]:
    """Averages the leaves over the devices, and gives each device its shard of the mean.

    Math: y = (sum_j x_j[i])/n on device i, of n equal parts
    Comm:
        forward: reduce_scatter(axis) tree
        backward: all_gather(axis) tree/n
    Memory: tree/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.2
    """
    return jax.tree.map(lambda leaf: leaf / lax.axis_size(axis), sum_shards(tree, axis=axis))


def gather_shards(
    shards: PyTree[Array],
    like: PyTree[Any],
    *,
    axis: str,
    to: Literal["varying", "invarying"] = "varying",
) -> PyTree[Array]:
    """Gathers the shards of all devices into full leaves, which have the shapes of `like`.

    With `to="varying"` the transpose is a reduce-scatter, which sums the gradients of all devices.
    With `to="invarying"` the result is typed as equal on all devices, as updated parameters must
    be.

    Math: y = [x_1, ..., x_n], without the padding
    Comm:
        forward: all_gather(axis) shards
        backward: reduce_scatter(axis) shards*n
    Memory: shards*n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.3
    """
    n = lax.axis_size(axis)

    def gather(shard: Shaped[Array, "..."], leaf_like: Any) -> Shaped[Array, "..."]:
        dim = split_dim(leaf_like.shape, n)
        if dim is None:
            return shard
        padded = lax.all_gather(shard, axis, axis=dim, tiled=True, to=to)
        return lax.slice_in_dim(padded, 0, leaf_like.shape[dim], axis=dim)

    return jax.tree.map(gather, shards, like)


def _pad(leaf: Array, n: int) -> Array:
    dim = split_dim(leaf.shape, n)
    if dim is None or leaf.shape[dim] % n == 0:
        return leaf
    widths = [(0, -size % n if d == dim else 0) for d, size in enumerate(leaf.shape)]
    return jnp.pad(leaf, widths)


def _spec(dim: int | None, axis: str) -> P:
    return P() if dim is None else P(*[None] * dim, axis)
