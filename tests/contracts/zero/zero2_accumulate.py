"""Answers to zero2_accumulate: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right

tree_map = jax.tree.map


def _here(tree, axis):
    return lax.pcast(tree, axis, to="varying")


def _blocks(leaf, axis):
    return leaf.reshape(lax.axis_size(axis), -1, *leaf.shape[1:])


def _own(tree, axis):
    return tree_map(lambda leaf: _blocks(leaf, axis)[lax.axis_index(axis)], tree)


def _means(tree, axis):
    n = lax.axis_size(axis)
    return tree_map(lambda leaf: lax.psum_scatter(leaf, axis, tiled=True) / n, tree)


def _number(microbatches):
    return len(jax.tree.leaves(microbatches)[0])


def _part(microbatches, i):
    return tree_map(lambda leaf: leaf[i], microbatches)


@right
def accumulated_as_running_mean(loss_fn, params, microbatches, *, axis):
    here, m = _here(params, axis), _number(microbatches)

    def add(i, mean):
        new = _means(jax.grad(loss_fn)(here, _part(microbatches, i)), axis)
        return tree_map(lambda old, new: old + (new - old) / (i + 1), mean, new)

    return lax.fori_loop(0, m, add, tree_map(jnp.zeros_like, _own(params, axis)))


@right
def accumulated_by_scaled_loss(loss_fn, params, microbatches, *, axis):
    here, parts = _here(params, axis), lax.axis_size(axis) * _number(microbatches)

    def add(total, part):
        g = jax.grad(lambda params: loss_fn(params, part) / parts)(here)
        return tree_map(lambda t, g: t + lax.psum_scatter(_blocks(g, axis), axis), total, g), None

    zeros = tree_map(
        lambda p: _here(jnp.zeros((len(p) // lax.axis_size(axis), *p.shape[1:])), axis), params
    )
    return lax.scan(add, zeros, microbatches)[0]


@right
def accumulated_last_first(loss_fn, params, microbatches, *, axis):
    here = _here(params, axis)

    def add(total, part):
        return tree_map(jnp.add, total, _means(jax.grad(loss_fn)(here, part), axis)), None

    zeros = tree_map(jnp.zeros_like, _own(params, axis))
    total, _ = lax.scan(add, zeros, microbatches, reverse=True)
    return tree_map(lambda leaf: leaf / _number(microbatches), total)


@right
def accumulated_by_pairs(loss_fn, params, microbatches, *, axis):
    """Two microbatches as one batch: half the scatters."""
    pairs = tree_map(lambda x: x.reshape(-1, 2 * x.shape[1], *x.shape[2:]), microbatches)
    return accumulated_last_first(loss_fn, params, pairs, axis=axis)


@wrong("values")
def accumulated_in_bfloat16(loss_fn, params, microbatches, *, axis):
    here = _here(params, axis)

    def add(total, part):
        low = tree_map(lambda g: g.astype(jnp.bfloat16), jax.grad(loss_fn)(here, part))
        return tree_map(jnp.add, total, _means(low, axis)), None

    zeros = tree_map(lambda p: jnp.zeros_like(p, jnp.bfloat16), _own(params, axis))
    total, _ = lax.scan(add, zeros, microbatches)
    return tree_map(lambda leaf: leaf.astype(jnp.float32) / _number(microbatches), total)


def _gather(tree, axis):
    return tree_map(lambda leaf: lax.all_gather(leaf, axis, tiled=True), tree)


@wrong("communication")
def accumulated_through_gathered_params(loss_fn, params, microbatches, *, axis):
    """The derivative of a gather is a reduce-scatter, but the gather is not free."""

    def add(total, part):
        def loss(rows):
            return loss_fn(_gather(rows, axis), part) / lax.axis_size(axis)

        return tree_map(jnp.add, total, jax.grad(loss)(_own(params, axis))), None

    total, _ = lax.scan(add, tree_map(jnp.zeros_like, _own(params, axis)), microbatches)
    return tree_map(lambda leaf: leaf / _number(microbatches), total)


@wrong("memory")
def accumulated_as_one_batch(loss_fn, params, microbatches, *, axis):
    batch = tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), microbatches)
    return _means(jax.grad(loss_fn)(_here(params, axis), batch), axis)


@wrong("memory")
def accumulated_then_scattered_under_a_condition(loss_fn, params, microbatches, *, axis):
    here, m = _here(params, axis), _number(microbatches)

    def add(total, step):
        i, part = step
        total = tree_map(jnp.add, total, jax.grad(loss_fn)(here, part))
        rows = lax.cond(
            i == m - 1,
            lambda t: _means(t, axis),
            lambda t: tree_map(jnp.zeros_like, _own(t, axis)),
            total,
        )
        return total, rows

    steps = jnp.arange(m), microbatches
    _, rows = lax.scan(add, tree_map(jnp.zeros_like, here), steps)
    return tree_map(lambda leaf: leaf.sum(axis=0) / m, rows)


@wrong("memory")
def accumulated_in_rows_of_zeros(loss_fn, params, microbatches, *, axis):
    """A whole accumulator, most of which is zero."""
    here = _here(params, axis)

    def among_zeros(rows, whole):
        start = lax.axis_index(axis) * len(rows)
        return lax.dynamic_update_slice_in_dim(jnp.zeros_like(whole), rows, start, 0)

    def add(total, part):
        rows = _means(jax.grad(loss_fn)(here, part), axis)
        return tree_map(lambda t, r: t + among_zeros(r, t), total, rows), None

    total, _ = lax.scan(add, tree_map(jnp.zeros_like, here), microbatches)
    return tree_map(lambda leaf: leaf / _number(microbatches), _own(total, axis))
