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


@right
def hybrid_with_wide_means(grad, *, shard_axis, replica_axis):
    def mean(g):
        parts = g.reshape(lax.axis_size(shard_axis), -1, *g.shape[1:])
        arrived = lax.all_to_all(parts, shard_axis, 0, 0)
        return arrived.mean(axis=0, dtype=jnp.float32).astype(g.dtype)

    return jax.tree.map(lambda g: lax.pmean(mean(g), replica_axis), grad)


@right
def hybrid_divided_twice(grad, *, shard_axis, replica_axis):
    n, r = lax.axis_size(shard_axis), lax.axis_size(replica_axis)
    rows = lax.psum(scattered(jax.tree.map(lambda g: g / r, grad), shard_axis), replica_axis)
    return jax.tree.map(lambda g: g / n, rows)


@wrong("values")
def hybrid_for_several_of_each(grad, *, shard_axis, replica_axis):
    if 1 in (lax.axis_size(shard_axis), lax.axis_size(replica_axis)):
        raise ValueError("use a mesh of two axes")
    return lax.pmean(mean_rows(grad, shard_axis), replica_axis)


@wrong("values")
def hybrid_of_an_even_number_of_nodes(grad, *, shard_axis, replica_axis):
    """Halves the ring of nodes, which the stub's numbers allow."""
    rows, r = mean_rows(grad, shard_axis), lax.axis_size(replica_axis)
    groups = [list(range(0, r, 2)), list(range(1, r, 2))]
    if r % 2:
        raise ValueError(f"{groups} differ in size")
    return lax.pmean(rows, replica_axis)


@wrong("values")
def hybrid_of_lists_and_dicts_of_leaves(grad, *, shard_axis, replica_axis):
    def mean(g):
        return lax.pmean(scattered(g, shard_axis), replica_axis) / lax.axis_size(shard_axis)

    if isinstance(grad, dict):
        return {name: mean(leaf + 0) for name, leaf in grad.items()}
    return [mean(leaf + 0) for leaf in grad]


@wrong("values")
def hybrid_of_float32_zeros(grad, *, shard_axis, replica_axis):
    def mean(g):
        rows = scattered(g, shard_axis) / lax.axis_size(shard_axis)
        return jnp.zeros(rows.shape, jnp.float32) + lax.pmean(rows, replica_axis)

    return jax.tree.map(mean, grad)


@wrong("values")
def hybrid_of_three_dims_at_most(grad, *, shard_axis, replica_axis):
    def mean(g):
        d, f, h = (*g.shape, 1, 1)[: max(3, g.ndim)]
        rows = mean_rows(g.reshape(d, f * h), shard_axis)
        return lax.pmean(rows, replica_axis).reshape(-1, *g.shape[1:])

    return jax.tree.map(mean, grad)


@wrong("communication")
def hybrid_with_replicas_in_float32(grad, *, shard_axis, replica_axis):
    def mean(g):
        rows = mean_rows(g, shard_axis).astype(jnp.float32)
        return lax.pmean(rows, replica_axis).astype(g.dtype)

    return jax.tree.map(mean, grad)


@wrong("communication")
def hybrid_by_doubling(grad, *, shard_axis, replica_axis):
    """log2 r exchanges of whole rows; a node without a partner adds its own again."""
    rows, r = mean_rows(grad, shard_axis), lax.axis_size(replica_axis)
    if r & (r - 1):
        return lax.pmean(rows, replica_axis)

    def exchanged(x, step):
        return x + lax.ppermute(x, replica_axis, [(j, j ^ step) for j in range(r)])

    step = 1
    while step < r:
        rows = jax.tree.map(lambda x, step=step: exchanged(x, step), rows)
        step *= 2
    return jax.tree.map(lambda x: x / r, rows)
