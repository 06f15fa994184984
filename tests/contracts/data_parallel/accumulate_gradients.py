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
