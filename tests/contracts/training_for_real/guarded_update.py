"""Answers to guarded_update: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _norm(grads, axis):
    squares = [
        jnp.vdot(g.astype(jnp.float32), g.astype(jnp.float32)) for g in jax.tree.leaves(grads)
    ]
    return jnp.sqrt(lax.psum(sum(squares), axis))


def _good(norm, mean, factor):
    if factor <= 0:
        raise ValueError("the factor is not above 0")
    limit = jnp.where(mean == 0, jnp.inf, factor * mean)
    return (norm <= limit) & (norm < jnp.inf)


def _new(grads, params, state, optimizer, norm):
    inner, mean = state
    updates, inner = optimizer.update(grads, inner, params)
    mean = jnp.where(mean == 0, norm, mean + 0.1 * (norm - mean))
    return optax.apply_updates(params, updates), (inner, mean)


@right
def chosen_by_select(grads, params, state, optimizer, *, factor, axis):
    norm = _norm(grads, axis)
    good = _good(norm, state[1], factor)
    new = _new(grads, params, state, optimizer, norm)
    chosen = jax.tree.map(
        lambda x, y: lax.select(jnp.full(x.shape, good), x, y), new, (params, state)
    )
    return *chosen, good


@right
def under_a_condition(grads, params, state, optimizer, *, factor, axis):
    norm = _norm(grads, axis)
    good = _good(norm, state[1], factor)
    taken = lambda: _new(grads, params, state, optimizer, norm)  # noqa: E731
    return *lax.cond(good, taken, lambda: (params, state)), good


def _chosen(good, new, old):
    return jax.tree.map(lambda x, y: jnp.where(good, x, y), new, old)


@wrong("values")
def own_mesh_of_four(grads, params, state, optimizer, *, factor, axis):
    """The squares of one device, times 4."""
    squares = sum(jnp.sum(g.astype(jnp.float32) ** 2) for g in jax.tree.leaves(grads))
    norm = jnp.sqrt(lax.pmean(squares, axis) * 4)
    good = _good(norm, state[1], factor)
    return *_chosen(good, _new(grads, params, state, optimizer, norm), (params, state)), good


@wrong("values")
def largest_of_the_devices(grads, params, state, optimizer, *, factor, axis):
    squares = sum(jnp.sum(g.astype(jnp.float32) ** 2) for g in jax.tree.leaves(grads))
    norm = jnp.sqrt(lax.pmax(squares, axis))
    good = _good(norm, state[1], factor)
    return *_chosen(good, _new(grads, params, state, optimizer, norm), (params, state)), good


@wrong("values")
def nan_replaced_by_zero(grads, params, state, optimizer, *, factor, axis):
    grads = jax.tree.map(lambda g: jnp.nan_to_num(g, posinf=0, neginf=0), grads)
    return chosen_by_select(grads, params, state, optimizer, factor=factor, axis=axis)


@wrong("values")
def clipped_not_skipped(grads, params, state, optimizer, *, factor, axis):
    norm, mean = _norm(grads, axis), state[1]
    good = _good(norm, mean, factor)
    scale = jnp.where(good, 1.0, factor * mean / norm)
    grads = jax.tree.map(lambda g: (g * scale).astype(g.dtype), grads)
    params, state = _new(grads, params, state, optimizer, jnp.minimum(norm, factor * mean))
    return params, state, good


@wrong("values")
def compared_with_the_new_mean(grads, params, state, optimizer, *, factor, axis):
    norm = _norm(grads, axis)
    new = _new(grads, params, state, optimizer, norm)
    good = _good(norm, new[1][1], factor)
    return *_chosen(good, new, (params, state)), good


@wrong("values")
def always_skipped(grads, params, state, optimizer, *, factor, axis):
    good = _good(_norm(grads, axis), state[1], factor)
    return params, state, good & False


@wrong("values")
def only_nan_skipped(grads, params, state, optimizer, *, factor, axis):
    """optax.apply_if_finite."""
    norm = _norm(grads, axis)
    _good(norm, state[1], factor)
    good = jnp.isfinite(norm)
    return *_chosen(good, _new(grads, params, state, optimizer, norm), (params, state)), good


@wrong("communication")
def squares_of_each_element_sent(grads, params, state, optimizer, *, factor, axis):
    squares = jax.tree.map(lambda g: lax.psum(g.astype(jnp.float32) ** 2, axis), grads)
    norm = jnp.sqrt(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(squares)))
    good = _good(norm, state[1], factor)
    return *_chosen(good, _new(grads, params, state, optimizer, norm), (params, state)), good
