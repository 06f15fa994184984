"""Answers to zero1_update: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right

tree_map = jax.tree.map


def _blocks(leaf, axis):
    return leaf.reshape(lax.axis_size(axis), -1, *leaf.shape[1:])


def _own(tree, axis):
    return tree_map(lambda leaf: _blocks(leaf, axis)[lax.axis_index(axis)], tree)


def _means(tree, axis):
    n = lax.axis_size(axis)
    return tree_map(lambda leaf: lax.psum_scatter(leaf, axis, tiled=True) / n, tree)


def _new_rows(rows, params, opt_shard, optimizer, axis):
    own = _own(params, axis)
    updates, state = optimizer.update(rows, opt_shard, own)
    return optax.apply_updates(own, updates), state


@right
def update_typed_as_equal(grads, params, opt_shard, optimizer, *, axis):
    new, state = _new_rows(_means(grads, axis), params, opt_shard, optimizer, axis)
    whole = tree_map(lambda x: lax.all_gather(x, axis, tiled=True, to="invarying"), new)
    return whole, state


@right
def update_by_blocks(grads, params, opt_shard, optimizer, *, axis):
    n = lax.axis_size(axis)
    rows = tree_map(lambda g: lax.psum_scatter(_blocks(g / n, axis), axis), grads)
    new, state = _new_rows(rows, params, opt_shard, optimizer, axis)
    return tree_map(lambda x, p: lax.all_gather(x, axis).reshape(p.shape), new, params), state


def _gather(tree, axis):
    return tree_map(lambda leaf: lax.all_gather(leaf, axis, tiled=True), tree)


@right
def update_by_exchange(grads, params, opt_shard, optimizer, *, axis):
    rows = tree_map(lambda g: lax.all_to_all(_blocks(g, axis), axis, 0, 0).mean(axis=0), grads)
    new, state = _new_rows(rows, params, opt_shard, optimizer, axis)
    return _gather(new, axis), state


@right
def update_in_one_array(grads, params, opt_shard, optimizer, *, axis):
    n = lax.axis_size(axis)
    own, restore = ravel_pytree(_own(params, axis))
    blocks = [_blocks(g, axis).reshape(n, -1) for g in jax.tree.leaves(grads)]
    rows = restore(lax.psum_scatter(jnp.concatenate(blocks, axis=1), axis) / n)
    updates, state = optimizer.update(rows, opt_shard, restore(own))
    flat, _ = ravel_pytree(optax.apply_updates(restore(own), updates))
    each = [restore(row) for row in lax.all_gather(flat, axis)]
    return tree_map(lambda *leaves: jnp.concatenate(leaves), *each), state


@right
def updates_gathered_then_added(grads, params, opt_shard, optimizer, *, axis):
    updates, state = optimizer.update(_means(grads, axis), opt_shard, _own(params, axis))
    return optax.apply_updates(params, _gather(updates, axis)), state


@right
def update_round_a_ring(grads, params, opt_shard, optimizer, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    ring = [(j, (j + 1) % n) for j in range(n)]

    def reduce(g):
        blocks = _blocks(g, axis)
        part = blocks[(i - 1) % n]
        for step in range(2, n + 1):
            part = lax.ppermute(part, axis, ring) + blocks[(i - step) % n]
        return part / n

    new, state = _new_rows(tree_map(reduce, grads), params, opt_shard, optimizer, axis)
    return _gather(new, axis), state


def _here(tree, axis):
    return lax.pcast(tree, axis, to="varying")


@right
def update_gathered_round_a_ring(grads, params, opt_shard, optimizer, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def gather(rows):
        whole = _here(jnp.zeros((n, *rows.shape), rows.dtype), axis)
        for step in range(n):
            whole = lax.dynamic_update_index_in_dim(whole, rows, (i - step) % n, 0)
            if step < n - 1:
                rows = lax.ppermute(rows, axis, [(j, (j + 1) % n) for j in range(n)])
        return whole.reshape(-1, *rows.shape[1:])

    new, state = _new_rows(_means(grads, axis), params, opt_shard, optimizer, axis)
    return tree_map(gather, new), state


@wrong("values")
def update_by_rough_gradients(grads, params, opt_shard, optimizer, *, axis):
    low = tree_map(lambda g: g.astype(jnp.bfloat16), grads)
    rows = tree_map(lambda g: g.astype(jnp.float32), _means(low, axis))
    new, state = _new_rows(rows, params, opt_shard, optimizer, axis)
    return _gather(new, axis), state


@wrong("values")
def update_gathered_in_bfloat16(grads, params, opt_shard, optimizer, *, axis):
    new, state = _new_rows(_means(grads, axis), params, opt_shard, optimizer, axis)
    low = _gather(tree_map(lambda x: x.astype(jnp.bfloat16), new), axis)
    return tree_map(lambda x: x.astype(jnp.float32), low), state


@wrong("values")
def update_by_name_of_first_axis(grads, params, opt_shard, optimizer, *, axis):
    return update_by_blocks(grads, params, opt_shard, optimizer, axis="dp")


@wrong("values")
def update_with_a_list_for_a_state(grads, params, opt_shard, optimizer, *, axis):
    new, state = update_typed_as_equal(grads, params, opt_shard, optimizer, axis=axis)
    return new, jax.tree.leaves(state)


@wrong("communication")
def update_scatters_params_too(grads, params, opt_shard, optimizer, *, axis):
    own = _means(_here(params, axis), axis)
    updates, state = optimizer.update(_means(grads, axis), opt_shard, own)
    return _gather(optax.apply_updates(own, updates), axis), state


@wrong("communication")
def update_gathers_mean_gradients(grads, params, opt_shard, optimizer, *, axis):
    rows = _own(_gather(_means(grads, axis), axis), axis)
    new, state = _new_rows(rows, params, opt_shard, optimizer, axis)
    return _gather(new, axis), state


@wrong("communication")
def update_passes_gradients_on(grads, params, opt_shard, optimizer, *, axis):
    """All gradients go round the ring: n-1 times as many bytes as a device needs."""
    n = lax.axis_size(axis)
    ring = [(j, (j + 1) % n) for j in range(n)]
    total = passing = grads
    for _ in range(n - 1):
        passing = lax.ppermute(passing, axis, ring)
        total = tree_map(jnp.add, total, passing)
    rows = _own(tree_map(lambda g: g / n, total), axis)
    new, state = _new_rows(rows, params, opt_shard, optimizer, axis)
    return _gather(new, axis), state


@wrong("communication")
def update_under_a_condition(grads, params, opt_shard, optimizer, *, axis):
    def reduce(g):
        return _own(lax.pmean(g, axis), axis)

    finite = jnp.isfinite(ravel_pytree(params)[0]).all()
    rows = lax.cond(finite, reduce, lambda g: _own(g, axis), grads)
    new, state = _new_rows(rows, params, opt_shard, optimizer, axis)
    return _gather(new, axis), state
