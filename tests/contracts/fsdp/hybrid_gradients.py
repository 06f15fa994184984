"""Answers to hybrid_gradients: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter, gathered, own_shard, scattered
from jaxpar.contracts.zero.common import mean_rows
from jaxpar.parallel.precision import cast
from tests.contracts.answers import right


@right
def hybrid_leaf_by_leaf(grad, *, shard_axis, replica_axis):
    n = lax.axis_size(shard_axis) * lax.axis_size(replica_axis)
    return jax.tree.map(lambda g: lax.psum(scattered(g / n, shard_axis), replica_axis), grad)


@right
def hybrid_by_exchange(grad, *, shard_axis, replica_axis):
    def mean(g):
        parts = g.reshape(lax.axis_size(shard_axis), -1, *g.shape[1:])
        return lax.all_to_all(parts, shard_axis, 0, 0).mean(axis=0)

    return lax.pmean(jax.tree.map(mean, grad), replica_axis)


@right
def hybrid_in_one_array(grad, *, shard_axis, replica_axis):
    n = lax.axis_size(shard_axis)
    own = jax.tree.map(lambda g: g[: len(g) // n], grad)
    restore = ravel_pytree(own)[1]
    cut = jax.tree.map(lambda g: g.reshape(n, -1), grad)
    flat = jnp.concatenate(jax.tree.leaves(cut), axis=1)
    return restore(lax.pmean(lax.psum_scatter(flat, shard_axis), replica_axis) / n)


@right
def hybrid_scattered_and_gathered(grad, *, shard_axis, replica_axis):
    def mean(g):
        rows = mean_rows(g, shard_axis)
        r = lax.axis_size(replica_axis)
        flat = jnp.pad(rows.ravel(), (0, -rows.size % r))
        whole = gathered(scattered(flat, replica_axis) / r, replica_axis)
        return whole[: rows.size].reshape(rows.shape)

    return jax.tree.map(mean, grad)


@wrong("values")
def hybrid_over_the_whole_mesh(grad, *, shard_axis, replica_axis):
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    others = tuple(axis for axis in axes if axis != shard_axis)
    return lax.pmean(mean_rows(grad, shard_axis), others)


@wrong("values")
def hybrid_with_eight_devices(grad, *, shard_axis, replica_axis):
    rows = jax.tree.map(lambda g: scattered(g, shard_axis) / 8, grad)
    return lax.psum(rows, replica_axis)


@wrong("values")
def hybrid_in_bfloat16(grad, *, shard_axis, replica_axis):
    small = mean_rows(cast(grad, jnp.bfloat16), shard_axis)
    return cast(lax.pmean(small, replica_axis), jnp.float32)


@wrong("communication")
def hybrid_scattered_over_both(grad, *, shard_axis, replica_axis):
    both = (shard_axis, replica_axis)
    n = lax.axis_size(both)

    def mean(g):
        part = scattered(jnp.pad(g.ravel(), (0, -g.size % n)), both) / n
        return gathered(part, replica_axis).reshape(-1, *g.shape[1:])

    return jax.tree.map(mean, grad)


@wrong("communication")
def hybrid_of_gathered_gradients(grad, *, shard_axis, replica_axis):
    def mean(g):
        return own_shard(lax.all_gather(g, shard_axis).mean(axis=0), shard_axis)

    return lax.pmean(jax.tree.map(mean, grad), replica_axis)


@wrong("communication")
def hybrid_reduced_twice(grad, *, shard_axis, replica_axis):
    rows = mean_rows(grad, shard_axis)
    return lax.pmean(enter(lax.pmean(rows, replica_axis), replica_axis), replica_axis)
