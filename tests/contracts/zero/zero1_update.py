"""Answers to zero1_update: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.data_parallel.common import divided
from jaxpar.contracts.optimizers import ADAMW, MOMENTUM
from jaxpar.contracts.steps import among_zeros, enter, gathered, hop
from jaxpar.contracts.zero.common import mean_rows, new_params, own_rows, updated_rows
from tests.contracts.answers import right
from tests.contracts.ring_and_tree.common import ring_all_gather, ring_reduce_scatter

tree_map = jax.tree.map


def _blocks(leaf, axis):
    return leaf.reshape(lax.axis_size(axis), -1, *leaf.shape[1:])


@right
def update_typed_as_equal(grads, params, opt_shard, optimizer, *, axis):
    new, state = updated_rows(mean_rows(grads, axis), params, opt_shard, optimizer, axis)
    whole = tree_map(lambda x: lax.all_gather(x, axis, tiled=True, to="invarying"), new)
    return whole, state


@right
def update_by_blocks(grads, params, opt_shard, optimizer, *, axis):
    n = lax.axis_size(axis)
    rows = tree_map(lambda g: lax.psum_scatter(_blocks(g / n, axis), axis), grads)
    new, state = updated_rows(rows, params, opt_shard, optimizer, axis)
    return tree_map(lambda x, p: lax.all_gather(x, axis).reshape(p.shape), new, params), state


@right
def update_by_exchange(grads, params, opt_shard, optimizer, *, axis):
    rows = tree_map(lambda g: lax.all_to_all(_blocks(g, axis), axis, 0, 0).mean(axis=0), grads)
    return new_params(rows, params, opt_shard, optimizer, axis)


@right
def update_in_one_array(grads, params, opt_shard, optimizer, *, axis):
    n = lax.axis_size(axis)
    own, restore = ravel_pytree(own_rows(params, axis))
    blocks = [_blocks(g, axis).reshape(n, -1) for g in jax.tree.leaves(grads)]
    rows = restore(lax.psum_scatter(jnp.concatenate(blocks, axis=1), axis) / n)
    updates, state = optimizer.update(rows, opt_shard, restore(own))
    flat, _ = ravel_pytree(optax.apply_updates(restore(own), updates))
    each = [restore(row) for row in lax.all_gather(flat, axis)]
    return tree_map(lambda *leaves: jnp.concatenate(leaves), *each), state


@right
def updates_gathered_then_added(grads, params, opt_shard, optimizer, *, axis):
    updates, state = optimizer.update(mean_rows(grads, axis), opt_shard, own_rows(params, axis))
    return optax.apply_updates(params, gathered(updates, axis)), state


@right
def update_round_two_rings(grads, params, opt_shard, optimizer, *, axis):
    n = lax.axis_size(axis)
    rows = tree_map(lambda g: ring_reduce_scatter(_blocks(g, axis), axis) / n, grads)
    new, state = updated_rows(rows, params, opt_shard, optimizer, axis)
    return tree_map(lambda x, p: ring_all_gather(x, axis).reshape(p.shape), new, params), state


@wrong("values")
def update_by_rough_gradients(grads, params, opt_shard, optimizer, *, axis):
    low = tree_map(lambda g: g.astype(jnp.bfloat16), grads)
    rows = tree_map(lambda g: g.astype(jnp.float32), mean_rows(low, axis))
    return new_params(rows, params, opt_shard, optimizer, axis)


@wrong("values")
def update_gathered_in_bfloat16(grads, params, opt_shard, optimizer, *, axis):
    new, state = updated_rows(mean_rows(grads, axis), params, opt_shard, optimizer, axis)
    low = gathered(tree_map(lambda x: x.astype(jnp.bfloat16), new), axis)
    return tree_map(lambda x: x.astype(jnp.float32), low), state


@wrong("values")
def update_with_a_list_for_a_state(grads, params, opt_shard, optimizer, *, axis):
    new, state = update_typed_as_equal(grads, params, opt_shard, optimizer, axis=axis)
    return new, jax.tree.leaves(state)


@wrong("communication")
def update_scatters_params_too(grads, params, opt_shard, optimizer, *, axis):
    own = mean_rows(enter(params, axis), axis)
    updates, state = optimizer.update(mean_rows(grads, axis), opt_shard, own)
    return gathered(optax.apply_updates(own, updates), axis), state


@wrong("communication")
def update_gathers_mean_gradients(grads, params, opt_shard, optimizer, *, axis):
    rows = own_rows(gathered(mean_rows(grads, axis), axis), axis)
    return new_params(rows, params, opt_shard, optimizer, axis)


@wrong("communication")
def update_passes_gradients_on(grads, params, opt_shard, optimizer, *, axis):
    """All gradients go round the ring: n-1 times as many bytes as a device needs."""
    n = lax.axis_size(axis)
    total = passing = grads
    for _ in range(n - 1):
        passing = hop(passing, axis)
        total = tree_map(jnp.add, total, passing)
    rows = own_rows(divided(total, n), axis)
    return new_params(rows, params, opt_shard, optimizer, axis)


@wrong("communication")
def update_under_a_condition(grads, params, opt_shard, optimizer, *, axis):
    def reduce(g):
        return own_rows(lax.pmean(g, axis), axis)

    finite = jnp.isfinite(ravel_pytree(params)[0]).all()
    rows = lax.cond(finite, reduce, lambda g: own_rows(g, axis), grads)
    return new_params(rows, params, opt_shard, optimizer, axis)


@right
def update_by_wide_mean_of_exchange(grads, params, opt_shard, optimizer, *, axis):
    def mean(g):
        parts = lax.all_to_all(_blocks(g, axis), axis, 0, 0)
        return jnp.mean(parts, axis=0, dtype=jnp.float32).astype(g.dtype)

    return new_params(tree_map(mean, grads), params, opt_shard, optimizer, axis)


@right
def update_typed_as_varying(grads, params, opt_shard, optimizer, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    own = tree_map(lambda p: jnp.split(enter(p, axis), n)[0], params)
    own = tree_map(lambda first, p: _blocks(p, axis)[i].astype(first.dtype), own, params)
    updates, state = optimizer.update(mean_rows(grads, axis), opt_shard, own)
    return gathered(tree_map(jnp.add, own, updates), axis), state


@wrong("values")
def update_by_optimizers_of_the_stub(grads, params, opt_shard, optimizer, *, axis):
    known = ADAMW if isinstance(params, dict) else MOMENTUM
    return new_params(mean_rows(grads, axis), params, opt_shard, known, axis)


@wrong("values")
def update_returned_in_float32(grads, params, opt_shard, optimizer, *, axis):
    new, state = new_params(mean_rows(grads, axis), params, opt_shard, optimizer, axis)
    return tree_map(lambda p: p.astype(jnp.float32), new), state


@wrong("values")
def update_with_state_in_float32(grads, params, opt_shard, optimizer, *, axis):
    def wide(x):
        return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x

    rows, state = mean_rows(grads, axis), tree_map(wide, opt_shard)
    return new_params(rows, params, state, optimizer, axis)


@wrong("values")
def update_of_several_devices(grads, params, opt_shard, optimizer, *, axis):
    if lax.axis_size(axis) == 1:
        raise ValueError("one device has nothing to share")
    return new_params(mean_rows(grads, axis), params, opt_shard, optimizer, axis)


@wrong("values")
def update_of_three_dims_at_most(grads, params, opt_shard, optimizer, *, axis):
    rows = {1: "na->a", 2: "nab->ab", 3: "nabc->abc"}

    def mean(g):
        parts = lax.all_to_all(_blocks(g, axis), axis, 0, 0)
        return jnp.einsum(rows[g.ndim], parts) / lax.axis_size(axis)

    return new_params(tree_map(mean, grads), params, opt_shard, optimizer, axis)


@wrong("memory")
def update_of_rows_repeated(grads, params, opt_shard, optimizer, *, axis):
    """As many rows as all devices have, and each of them this device's own."""

    def repeated(tree):
        n = lax.axis_size(axis)
        return tree_map(lambda x: jnp.concatenate([x] * n) if x.ndim else x, tree)

    rows, own = repeated(mean_rows(grads, axis)), repeated(own_rows(params, axis))
    updates, state = optimizer.update(rows, repeated(opt_shard), own)
    new = own_rows(optax.apply_updates(own, updates), axis)
    return gathered(new, axis), tree_map(lambda x: own_rows(x, axis) if x.ndim else x, state)


@wrong("memory")
def update_of_rows_among_copies(grads, params, opt_shard, optimizer, *, axis):
    """The own rows of the state are put into a whole one, which is updated with whole gradients."""

    def put(tree):
        return tree_map(lambda x: among_zeros(x, axis) + 0 * x[:1] if x.ndim else x, tree)

    updates, state = optimizer.update(put(mean_rows(grads, axis)), put(opt_shard), params)
    new = optax.apply_updates(params, gathered(own_rows(updates, axis), axis))
    return new, tree_map(lambda x: own_rows(x, axis) if x.ndim else x, state)


@wrong("communication")
def update_gathered_in_float32(grads, params, opt_shard, optimizer, *, axis):
    new, state = updated_rows(mean_rows(grads, axis), params, opt_shard, optimizer, axis)
    whole = gathered(tree_map(lambda x: x.astype(jnp.float32), new), axis)
    return tree_map(lambda x, p: x.astype(p.dtype), whole, params), state
