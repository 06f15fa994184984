"""Answers to hybrid_gradients: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def hybrid_leaf_by_leaf(grad, *, shard_axis, replica_axis):
    n = lax.axis_size(shard_axis) * lax.axis_size(replica_axis)
    return jax.tree.map(
        lambda g: lax.psum(lax.psum_scatter(g / n, shard_axis, tiled=True), replica_axis), grad
    )


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


def _scattered(leaf, axis):
    return lax.psum_scatter(leaf, axis, tiled=True) / lax.axis_size(axis)


@right
def hybrid_scattered_and_gathered(grad, *, shard_axis, replica_axis):
    def mean(g):
        rows = _scattered(g, shard_axis)
        r = lax.axis_size(replica_axis)
        flat = jnp.pad(rows.ravel(), (0, -rows.size % r))
        part = lax.psum_scatter(flat, replica_axis, tiled=True) / r
        return lax.all_gather(part, replica_axis).ravel()[: rows.size].reshape(rows.shape)

    return jax.tree.map(mean, grad)


@right
def hybrid_untiled(grad, *, shard_axis, replica_axis):
    def mean(g):
        parts = g.reshape(lax.axis_size(shard_axis), -1, *g.shape[1:])
        return lax.psum_scatter(parts, shard_axis) / lax.axis_size(shard_axis)

    return lax.pmean(jax.tree.map(mean, grad), replica_axis)


@wrong("values")
def hybrid_over_the_whole_mesh(grad, *, shard_axis, replica_axis):
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    others = tuple(axis for axis in axes if axis != shard_axis)
    return lax.pmean(jax.tree.map(lambda g: _scattered(g, shard_axis), grad), others)


@wrong("values")
def hybrid_with_eight_devices(grad, *, shard_axis, replica_axis):
    rows = jax.tree.map(lambda g: lax.psum_scatter(g, shard_axis, tiled=True) / 8, grad)
    return lax.psum(rows, replica_axis)


@wrong("values")
def hybrid_by_names_of_first_case(grad, *, shard_axis, replica_axis):
    return lax.pmean(jax.tree.map(lambda g: _scattered(g, "fsdp"), grad), "dp")


@wrong("values")
def hybrid_in_bfloat16(grad, *, shard_axis, replica_axis):
    small = jax.tree.map(lambda g: _scattered(g.astype(jnp.bfloat16), shard_axis), grad)
    return jax.tree.map(lambda g: lax.pmean(g, replica_axis).astype(jnp.float32), small)


@wrong("communication")
def hybrid_scattered_over_both(grad, *, shard_axis, replica_axis):
    both = (shard_axis, replica_axis)
    n = lax.axis_size(both)

    def mean(g):
        part = lax.psum_scatter(jnp.pad(g.ravel(), (0, -g.size % n)), both, tiled=True) / n
        rows = lax.all_gather(part, replica_axis).ravel()
        return rows.reshape(-1, *g.shape[1:])

    return jax.tree.map(mean, grad)


def _rows(leaf, axis):
    size = len(leaf) // lax.axis_size(axis)
    return lax.dynamic_slice_in_dim(leaf, lax.axis_index(axis) * size, size)


@wrong("communication")
def hybrid_of_gathered_gradients(grad, *, shard_axis, replica_axis):
    def mean(g):
        return _rows(lax.all_gather(g, shard_axis).mean(axis=0), shard_axis)

    return lax.pmean(jax.tree.map(mean, grad), replica_axis)


@wrong("communication")
def hybrid_reduced_twice(grad, *, shard_axis, replica_axis):
    rows = jax.tree.map(lambda g: _scattered(g, shard_axis), grad)
    once = lax.pcast(lax.pmean(rows, replica_axis), replica_axis, to="varying")
    return lax.pmean(once, replica_axis)
