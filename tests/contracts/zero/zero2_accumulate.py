"""Answers to zero2_accumulate: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.data_parallel.common import divided, microbatch_count
from jaxpar.contracts.steps import enter, gathered
from jaxpar.contracts.zero.common import mean_rows, own_rows
from jaxpar.parallel.precision import cast
from tests.contracts.answers import right

tree_map = jax.tree.map


def _blocks(leaf, axis):
    return leaf.reshape(lax.axis_size(axis), -1, *leaf.shape[1:])


def _part(microbatches, i):
    return tree_map(lambda leaf: leaf[i], microbatches)


@right
def accumulated_as_running_mean(loss_fn, params, microbatches, *, axis):
    local, m = enter(params, axis), microbatch_count(microbatches)

    def add(i, mean):
        new = mean_rows(jax.grad(loss_fn)(local, _part(microbatches, i)), axis)
        return tree_map(lambda old, new: old + (new - old) / (i + 1), mean, new)

    return lax.fori_loop(0, m, add, tree_map(jnp.zeros_like, own_rows(params, axis)))


@right
def accumulated_by_scaled_loss(loss_fn, params, microbatches, *, axis):
    local, parts = enter(params, axis), lax.axis_size(axis) * microbatch_count(microbatches)

    def add(total, part):
        g = jax.grad(lambda params: loss_fn(params, part) / parts)(local)
        return tree_map(lambda t, g: t + lax.psum_scatter(_blocks(g, axis), axis), total, g), None

    zeros = tree_map(
        lambda p: enter(jnp.zeros((len(p) // lax.axis_size(axis), *p.shape[1:]), p.dtype), axis),
        params,
    )
    return lax.scan(add, zeros, microbatches)[0]


@right
def accumulated_last_first(loss_fn, params, microbatches, *, axis):
    local = enter(params, axis)

    def add(total, part):
        return tree_map(jnp.add, total, mean_rows(jax.grad(loss_fn)(local, part), axis)), None

    zeros = tree_map(jnp.zeros_like, own_rows(params, axis))
    total, _ = lax.scan(add, zeros, microbatches, reverse=True)
    return divided(total, microbatch_count(microbatches))


@right
def accumulated_by_pairs(loss_fn, params, microbatches, *, axis):
    """Two microbatches as one batch, if their number is even: half the scatters."""
    two = 2 - microbatch_count(microbatches) % 2
    pairs = tree_map(lambda x: x.reshape(-1, two * x.shape[1], *x.shape[2:]), microbatches)
    return accumulated_last_first(loss_fn, params, pairs, axis=axis)


@wrong("values")
def accumulated_in_bfloat16(loss_fn, params, microbatches, *, axis):
    local = enter(params, axis)

    def add(total, part):
        low = cast(jax.grad(loss_fn)(local, part), jnp.bfloat16)
        return tree_map(jnp.add, total, mean_rows(low, axis)), None

    zeros = tree_map(jnp.zeros_like, cast(own_rows(params, axis), jnp.bfloat16))
    total, _ = lax.scan(add, zeros, microbatches)
    return divided(cast(total, jnp.float32), microbatch_count(microbatches))


@wrong("communication")
def accumulated_through_gathered_params(loss_fn, params, microbatches, *, axis):
    """The derivative of a gather is a reduce-scatter, but the gather is not free."""

    def add(total, part):
        def loss(rows):
            return loss_fn(gathered(rows, axis), part) / lax.axis_size(axis)

        return tree_map(jnp.add, total, jax.grad(loss)(own_rows(params, axis))), None

    total, _ = lax.scan(add, tree_map(jnp.zeros_like, own_rows(params, axis)), microbatches)
    return divided(total, microbatch_count(microbatches))


@wrong("memory")
def accumulated_then_scattered_under_a_condition(loss_fn, params, microbatches, *, axis):
    local, m = enter(params, axis), microbatch_count(microbatches)

    def add(total, step):
        i, part = step
        total = tree_map(jnp.add, total, jax.grad(loss_fn)(local, part))
        rows = lax.cond(
            i == m - 1,
            lambda t: mean_rows(t, axis),
            lambda t: tree_map(jnp.zeros_like, own_rows(t, axis)),
            total,
        )
        return total, rows

    steps = jnp.arange(m), microbatches
    _, rows = lax.scan(add, tree_map(jnp.zeros_like, local), steps)
    return tree_map(lambda leaf: leaf.sum(axis=0) / m, rows)


@right
def accumulated_in_wide_sums(loss_fn, params, microbatches, *, axis):
    local = enter(params, axis)

    def add(total, part):
        rows = mean_rows(jax.grad(loss_fn)(local, part), axis)
        return tree_map(lambda t, r: t + r.astype(t.dtype), total, rows), None

    zeros = tree_map(lambda p: jnp.zeros_like(p, jnp.float32), own_rows(params, axis))
    total, _ = lax.scan(add, zeros, microbatches)
    mean = divided(total, microbatch_count(microbatches))
    return tree_map(lambda rows, p: rows.astype(p.dtype), mean, params)


@right
def accumulated_with_checkpoint(loss_fn, params, microbatches, *, axis):
    return accumulated_last_first(jax.checkpoint(loss_fn), params, microbatches, axis=axis)


@wrong("values")
def accumulated_over_eight_at_most(loss_fn, params, microbatches, *, axis):
    first = tree_map(lambda leaf: leaf[:8], microbatches)
    return accumulated_last_first(loss_fn, params, first, axis=axis)


@wrong("values")
def accumulated_by_pairs_only(loss_fn, params, microbatches, *, axis):
    """As if m were even."""
    pairs = tree_map(lambda x: x.reshape(-1, 2 * x.shape[1], *x.shape[2:]), microbatches)
    return accumulated_last_first(loss_fn, params, pairs, axis=axis)


@wrong("values")
def accumulated_from_float32_zeros(loss_fn, params, microbatches, *, axis):
    local = enter(params, axis)

    def add(i, total):
        rows = mean_rows(jax.grad(loss_fn)(local, _part(microbatches, i)), axis)
        return tree_map(jnp.add, total, rows)

    zeros = tree_map(lambda p: jnp.zeros_like(p, jnp.float32), own_rows(params, axis))
    total = lax.fori_loop(0, microbatch_count(microbatches), add, zeros)
    return divided(total, microbatch_count(microbatches))


@wrong("values")
def accumulated_on_several_devices(loss_fn, params, microbatches, *, axis):
    if lax.axis_size(axis) == 1:
        raise ValueError("one device has nothing to share")
    return accumulated_last_first(loss_fn, params, microbatches, axis=axis)


@wrong("values")
def accumulated_after_the_first(loss_fn, params, microbatches, *, axis):
    """There must be a second microbatch: m - 1 gradients are averaged with the first."""
    local, m = enter(params, axis), microbatch_count(microbatches)

    def add(total, part):
        return tree_map(jnp.add, total, mean_rows(jax.grad(loss_fn)(local, part), axis)), None

    def rest(i):
        return _part(microbatches, m - 1 - i)

    zeros = tree_map(jnp.zeros_like, own_rows(params, axis))
    total = lax.fori_loop(0, max(m - 1, 2), lambda i, t: add(t, rest(i))[0], zeros)
    return divided(add(total, _part(microbatches, 0))[0], m)


@wrong("memory")
def accumulated_with_everything_twice(loss_fn, params, microbatches, *, axis):
    def twice(params, part):
        other = tree_map(lambda leaf: leaf[::-1], part)  # the same examples in another order
        return (loss_fn(params, part) + loss_fn(params, other)) / 2

    return accumulated_last_first(twice, params, microbatches, axis=axis)


@wrong("memory")
def accumulated_over_copies_of_examples(loss_fn, params, microbatches, *, axis):
    """Each example n times: as many as all devices have."""
    n = lax.axis_size(axis)
    copies = tree_map(lambda x: jnp.concatenate([x] * n, axis=1), microbatches)
    return accumulated_last_first(loss_fn, params, copies, axis=axis)


@wrong("communication")
def accumulated_and_sent_in_float32(loss_fn, params, microbatches, *, axis):
    local = enter(params, axis)

    def add(total, part):
        g = jax.grad(loss_fn)(local, part)
        rows = mean_rows(cast(g, jnp.float32), axis)
        return tree_map(lambda t, r: t + r.astype(t.dtype), total, rows), None

    zeros = tree_map(lambda p: jnp.zeros_like(p, jnp.float32), own_rows(params, axis))
    total, _ = lax.scan(add, zeros, microbatches)
    mean = divided(total, microbatch_count(microbatches))
    return tree_map(lambda rows, p: rows.astype(p.dtype), mean, params)
