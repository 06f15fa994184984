"""Steps that right and wrong answers are made of: what one collective does, by a short name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

Step = Callable[[Array, str], Any]
"""What an answer does with one array and the name of a mesh axis."""


def as_it_is(x: Array, axis: str) -> Array:
    """The array itself, without any collective."""
    return x


def enter(x: Array, axis: str) -> Array:
    """Megatron's f: identity forward, all-reduce backward."""
    return lax.pcast(x, axis, to="varying")


def hop(x: Array, axis: str, by: int = 1) -> Array:
    """What arrives when every device sends its x `by` places on."""
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, (j + by) % n) for j in range(n)])


def gathered(x: Any, axis: str, dim: int = 0) -> Any:
    """The shards of all devices, one after another along a dim; of each leaf of a pytree."""
    return lax.all_gather(x, axis, axis=dim, tiled=True)


def scattered(x: Any, axis: str, dim: int = 0) -> Any:
    """This device's shard of the sum over the axis, along a dim; of each leaf of a pytree."""
    return lax.psum_scatter(x, axis, scatter_dimension=dim, tiled=True)


def own_shard(x: Array, axis: str, dim: int = 0) -> Array:
    """This device's shard of an array that it holds whole."""
    size = x.shape[dim] // lax.axis_size(axis)
    return lax.dynamic_slice_in_dim(x, lax.axis_index(axis) * size, size, dim)


def among_zeros(shard: Array, axis: str, dim: int = 0) -> Array:
    """The whole array, with this device's shard in its place and zeros elsewhere."""
    size, shape = shard.shape[dim], list(shard.shape)
    shape[dim] *= lax.axis_size(axis)
    zeros = jnp.zeros_like(shard, shape=shape)
    return lax.dynamic_update_slice_in_dim(zeros, shard, lax.axis_index(axis) * size, dim)


def gathered_by_sum(shard: Array, axis: str, dim: int = 0) -> Array:
    """The shards of all devices, gathered by an all-reduce: twice the bytes of an all-gather."""
    return lax.psum(among_zeros(shard, axis, dim), axis)


def gathered_for_own_gradient(shard: Array, axis: str, dim: int = 0) -> Array:
    """The shards of all devices; the gradient of a shard is that of this device's use alone."""
    whole = lax.stop_gradient(gathered(shard, axis, dim))
    return whole + among_zeros(shard - lax.stop_gradient(shard), axis, dim)


def gathered_for_all_reduce(shard: Array, axis: str, dim: int = 0) -> Array:
    """The shards of all devices; the gradient is all-reduced whole, and each takes its part."""
    return enter(lax.all_gather(shard, axis, axis=dim, tiled=True, to="invarying"), axis)


def with_gradient_divided(x: Array, axis: str) -> Array:
    """The array itself, with its gradient divided by the number of devices on the axis."""
    fixed = lax.stop_gradient(x)
    return fixed + (x - fixed) / lax.axis_size(axis)


def with_gradient_of_device_zero(x: Array, axis: str) -> Array:
    """The array itself, of which device 0 alone has a gradient."""
    return jnp.where(lax.axis_index(axis) == 0, x, lax.stop_gradient(x))
