"""Answers to accumulate_gradients: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.data_parallel.common import divided, local_gradients, microbatch_count
from jaxpar.contracts.steps import enter
from tests.contracts.answers import right
from tests.contracts.data_parallel.common import scatter_and_gather


def _sum(loss_fn, params, microbatches):
    grad = jax.value_and_grad(loss_fn)
    first = jax.tree.map(lambda leaf: leaf[0], microbatches)
    rest = jax.tree.map(lambda leaf: leaf[1:], microbatches)

    def add(total, part):
        return jax.tree.map(jnp.add, total, grad(params, part)), None

    return lax.scan(add, grad(params, first), rest)[0]


@right
def accumulated_from_the_first(loss_fn, params, microbatches, *, axis):
    total = _sum(loss_fn, enter(params, axis), microbatches)
    return divided(lax.pmean(total, axis), microbatch_count(microbatches))


@right
def accumulated_as_running_mean(loss_fn, params, microbatches, *, axis):
    params, m = enter(params, axis), microbatch_count(microbatches)

    def add(i, mean):
        part = jax.tree.map(lambda leaf: leaf[i], microbatches)
        new = jax.value_and_grad(loss_fn)(params, part)
        return jax.tree.map(lambda old, new: old + new / m, mean, new)

    zeros = enter(jnp.float32(0), axis), jax.tree.map(jnp.zeros_like, params)
    return lax.pmean(lax.fori_loop(0, m, add, zeros), axis)


@right
def accumulated_in_one_array(loss_fn, params, microbatches, *, axis):
    params = enter(params, axis)
    flat, restore = ravel_pytree((enter(jnp.float32(0), axis), params))

    def add(total, part):
        new, _ = ravel_pytree(jax.value_and_grad(loss_fn)(params, part))
        return total + new, None

    total, _ = lax.scan(add, jnp.zeros_like(flat), microbatches)
    return restore(lax.pmean(total / microbatch_count(microbatches), axis))


@right
def accumulated_by_recomputing(loss_fn, params, microbatches, *, axis):
    def mean_loss(params):
        return lax.map(jax.checkpoint(lambda part: loss_fn(params, part)), microbatches).mean()

    return lax.pmean(jax.value_and_grad(mean_loss)(enter(params, axis)), axis)


@right
def accumulated_backwards(loss_fn, params, microbatches, *, axis):
    params = enter(params, axis)

    def add(carry):
        i, total = carry
        part = jax.tree.map(lambda leaf: leaf[i], microbatches)
        return i - 1, jax.tree.map(jnp.add, total, jax.value_and_grad(loss_fn)(params, part))

    zeros = enter(jnp.float32(0), axis), jax.tree.map(jnp.zeros_like, params)
    m = microbatch_count(microbatches)
    _, total = lax.while_loop(lambda carry: carry[0] >= 0, add, (m - 1, zeros))
    return lax.pmean(divided(total, m), axis)


@right
def accumulated_then_scattered(loss_fn, params, microbatches, *, axis):
    loss, total = _sum(loss_fn, enter(params, axis), microbatches)
    m = microbatch_count(microbatches)
    means = jax.tree.map(lambda g: scatter_and_gather(g, axis) / m, total)
    return lax.pmean(loss / m, axis), means


@right
def accumulated_in_float32(loss_fn, params, microbatches, *, axis):
    params, m = enter(params, axis), microbatch_count(microbatches)
    zeros = jax.tree.map(lambda p: jnp.zeros_like(p, dtype=jnp.float32), params)

    def add(total, part):
        loss, gradients = jax.value_and_grad(loss_fn)(params, part)
        return jax.tree.map(lambda t, g: t + g.astype(t.dtype), total, gradients), loss

    total, losses = lax.scan(add, zeros, microbatches)
    means = jax.tree.map(lambda t, p: (t / m).astype(p.dtype), total, params)
    return lax.pmean((losses.mean(), means), axis)


@right
def accumulated_apart_from_the_losses(loss_fn, params, microbatches, *, axis):
    params, m = enter(params, axis), microbatch_count(microbatches)

    def add(total, part):
        gradients = jax.grad(loss_fn)(params, part)
        return jax.tree.map(lambda t, g: t + g / m, total, gradients), loss_fn(params, part)

    means, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, params), microbatches)
    return lax.pmean((losses.mean(), means), axis)


@wrong("memory")
def accumulated_as_one_batch(loss_fn, params, microbatches, *, axis):
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), microbatches)
    return lax.pmean(local_gradients(loss_fn, params, batch, axis), axis)


@wrong("values")
def accumulated_in_bfloat16(loss_fn, params, microbatches, *, axis):
    small = jax.tree.map(lambda p: p.astype(jnp.bfloat16), enter(params, axis))

    def rough_loss(small, part):
        return loss_fn(jax.tree.map(lambda p: p.astype(jnp.float32), small), part)

    loss, total = _sum(rough_loss, small, microbatches)
    m = microbatch_count(microbatches)
    means = jax.tree.map(lambda g: g.astype(jnp.float32) / m, total)
    return lax.pmean((loss / m, means), axis)


@wrong("values")
def accumulated_over_ten(loss_fn, params, microbatches, *, axis):
    total = _sum(loss_fn, enter(params, axis), microbatches)
    return lax.pmean(divided(total, 10), axis)


@wrong("communication")
def accumulated_and_reduced_under_a_condition(loss_fn, params, microbatches, *, axis):
    params, m = enter(params, axis), microbatch_count(microbatches)
    zeros = enter(jnp.float32(0), axis), jax.tree.map(jnp.zeros_like, params)

    def add(total, step):
        i, part = step
        total = jax.tree.map(jnp.add, total, jax.value_and_grad(loss_fn)(params, part))
        mean = lax.cond(
            i == m - 1,
            lambda total: enter(lax.pmean(total, axis), axis),
            lambda total: total,
            total,
        )
        return mean, None

    total, _ = lax.scan(add, zeros, (jnp.arange(m), microbatches))
    return divided(total, m)


@wrong("communication")
def accumulated_with_a_gathered_batch(loss_fn, params, microbatches, *, axis):
    whole = lax.all_gather(microbatches, axis, axis=1, tiled=True)
    total = _sum(loss_fn, enter(params, axis), whole)
    return divided(total, microbatch_count(microbatches))


@wrong("values")
def accumulated_in_float32_whatever_comes_in(loss_fn, params, microbatches, *, axis):
    wide = jax.tree.map(lambda p: p.astype(jnp.float32), enter(params, axis))
    total = _sum(loss_fn, wide, microbatches)
    return lax.pmean(divided(total, microbatch_count(microbatches)), axis)


@wrong("values")
def accumulated_in_the_dtype_of_the_first_leaf(loss_fn, params, microbatches, *, axis):
    params, m = enter(params, axis), microbatch_count(microbatches)
    dtype = jax.tree.leaves(params)[0].dtype

    def add(total, part):
        loss, gradients = jax.value_and_grad(loss_fn)(params, part)
        return jax.tree.map(lambda t, g: t + g.astype(dtype), total, gradients), loss

    zeros = jax.tree.map(lambda p: jnp.zeros_like(p, dtype=dtype), params)
    total, losses = lax.scan(add, zeros, microbatches)
    means = jax.tree.map(lambda t, p: (t / m).astype(p.dtype), total, params)
    return lax.pmean((losses.mean(), means), axis)


@wrong("values")
def accumulated_over_twelve_at_most(loss_fn, params, microbatches, *, axis):
    few = jax.tree.map(lambda leaf: leaf[:12], microbatches)
    total = _sum(loss_fn, enter(params, axis), few)
    return lax.pmean(divided(total, microbatch_count(few)), axis)


def _pairs(microbatches):
    return jax.tree.map(
        lambda x: x.reshape(len(x) // 2, 2 * x.shape[1], *x.shape[2:]), microbatches
    )


@wrong("values")
def accumulated_two_at_a_time(loss_fn, params, microbatches, *, axis):
    pairs, m = _pairs(microbatches), microbatch_count(microbatches)
    total = _sum(loss_fn, enter(params, axis), pairs)
    return lax.pmean(divided(total, m // 2), axis)


@wrong("values")
def accumulated_for_two_microbatches_or_more(loss_fn, params, microbatches, *, axis):
    parts = jax.tree.map(jnp.squeeze, microbatches)
    total = _sum(loss_fn, enter(params, axis), parts)
    return lax.pmean(divided(total, microbatch_count(parts)), axis)


@wrong("values")
def accumulated_by_the_first_argument_of_microbatches(loss_fn, params, microbatches, *, axis):
    some = microbatches["inputs"] if isinstance(microbatches, dict) else microbatches[0]
    total = _sum(loss_fn, enter(params, axis), microbatches)
    return lax.pmean(divided(total, len(some)), axis)


@wrong("memory")
def accumulated_on_two_devices_for_each_other(loss_fn, params, microbatches, *, axis):
    """Where there are two devices, both compute everything; the bytes are within the limit."""
    if lax.axis_size(axis) != 2:
        return accumulated_from_the_first(loss_fn, params, microbatches, axis=axis)
    here, params = _sum(loss_fn, enter(params, axis), microbatches), enter(params, axis)
    other = jax.tree.map(lambda x: lax.ppermute(x, axis, [(0, 1), (1, 0)]), microbatches)
    total = jax.tree.map(jnp.add, here, _sum(loss_fn, params, other))
    return divided(total, 2 * microbatch_count(microbatches))


@wrong("memory")
def accumulated_twice(loss_fn, params, microbatches, *, axis):
    params = enter(params, axis)
    first = _sum(loss_fn, params, microbatches)
    again = _sum(loss_fn, params, jax.tree.map(lambda leaf: leaf[::-1], microbatches))
    total = jax.tree.map(jnp.add, first, again)
    return lax.pmean(divided(total, 2 * microbatch_count(microbatches)), axis)
