"""Answers to accumulate_gradients: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right
from tests.contracts.data_parallel.common import here, local, scatter_and_gather


def _first_and_rest(microbatches):
    first = jax.tree.map(lambda leaf: leaf[0], microbatches)
    return first, jax.tree.map(lambda leaf: leaf[1:], microbatches)


def _number(microbatches):
    return len(jax.tree.leaves(microbatches)[0])


def _sum(loss_fn, params, microbatches):
    grad = jax.value_and_grad(loss_fn)
    first, rest = _first_and_rest(microbatches)
    return lax.scan(
        lambda total, part: (jax.tree.map(jnp.add, total, grad(params, part)), None),
        grad(params, first),
        rest,
    )[0]


@right
def accumulated_from_the_first(loss_fn, params, microbatches, *, axis):
    total = _sum(loss_fn, here(params, axis), microbatches)
    return jax.tree.map(lambda leaf: lax.pmean(leaf, axis) / _number(microbatches), total)


@right
def accumulated_as_running_mean(loss_fn, params, microbatches, *, axis):
    params, m = here(params, axis), _number(microbatches)

    def add(i, mean):
        part = jax.tree.map(lambda leaf: leaf[i], microbatches)
        new = jax.value_and_grad(loss_fn)(params, part)
        return jax.tree.map(lambda old, new: old + new / m, mean, new)

    zeros = here(jnp.float32(0), axis), jax.tree.map(jnp.zeros_like, params)
    return lax.pmean(lax.fori_loop(0, m, add, zeros), axis)


@right
def accumulated_in_one_array(loss_fn, params, microbatches, *, axis):
    params = here(params, axis)
    flat, restore = ravel_pytree((here(jnp.float32(0), axis), params))

    def add(total, part):
        new, _ = ravel_pytree(jax.value_and_grad(loss_fn)(params, part))
        return total + new, None

    total, _ = lax.scan(add, jnp.zeros_like(flat), microbatches)
    return restore(lax.pmean(total / _number(microbatches), axis))


@right
def accumulated_by_recomputing(loss_fn, params, microbatches, *, axis):
    def mean_loss(params):
        return lax.map(jax.checkpoint(lambda part: loss_fn(params, part)), microbatches).mean()

    return lax.pmean(jax.value_and_grad(mean_loss)(here(params, axis)), axis)


@right
def accumulated_backwards(loss_fn, params, microbatches, *, axis):
    params = here(params, axis)

    def add(carry):
        i, total = carry
        part = jax.tree.map(lambda leaf: leaf[i], microbatches)
        return i - 1, jax.tree.map(jnp.add, total, jax.value_and_grad(loss_fn)(params, part))

    zeros = here(jnp.float32(0), axis), jax.tree.map(jnp.zeros_like, params)
    m = _number(microbatches)
    _, total = lax.while_loop(lambda carry: carry[0] >= 0, add, (m - 1, zeros))
    return lax.pmean(jax.tree.map(lambda leaf: leaf / m, total), axis)


@right
def accumulated_then_scattered(loss_fn, params, microbatches, *, axis):
    loss, total = _sum(loss_fn, here(params, axis), microbatches)
    m = _number(microbatches)
    means = jax.tree.map(lambda g: scatter_and_gather(g, axis) / m, total)
    return lax.pmean(loss / m, axis), means


@wrong("memory")
def accumulated_as_one_batch(loss_fn, params, microbatches, *, axis):
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), microbatches)
    return lax.pmean(local(loss_fn, params, batch, axis), axis)


@wrong("values")
def accumulated_in_bfloat16(loss_fn, params, microbatches, *, axis):
    small = jax.tree.map(lambda p: p.astype(jnp.bfloat16), here(params, axis))

    def rough_loss(small, part):
        return loss_fn(jax.tree.map(lambda p: p.astype(jnp.float32), small), part)

    loss, total = _sum(rough_loss, small, microbatches)
    m = _number(microbatches)
    means = jax.tree.map(lambda g: g.astype(jnp.float32) / m, total)
    return lax.pmean((loss / m, means), axis)


@wrong("values")
def accumulated_over_ten(loss_fn, params, microbatches, *, axis):
    total = _sum(loss_fn, here(params, axis), microbatches)
    return lax.pmean(jax.tree.map(lambda leaf: leaf / 10, total), axis)


@wrong("communication")
def accumulated_and_reduced_under_a_condition(loss_fn, params, microbatches, *, axis):
    params, m = here(params, axis), _number(microbatches)
    zeros = here(jnp.float32(0), axis), jax.tree.map(jnp.zeros_like, params)

    def add(total, step):
        i, part = step
        total = jax.tree.map(jnp.add, total, jax.value_and_grad(loss_fn)(params, part))
        mean = lax.cond(
            i == m - 1,
            lambda total: here(lax.pmean(total, axis), axis),
            lambda total: total,
            total,
        )
        return mean, None

    total, _ = lax.scan(add, zeros, (jnp.arange(m), microbatches))
    return jax.tree.map(lambda leaf: leaf / m, total)


@wrong("communication")
def accumulated_with_a_gathered_batch(loss_fn, params, microbatches, *, axis):
    whole = lax.all_gather(microbatches, axis, axis=1, tiled=True)
    total = _sum(loss_fn, here(params, axis), whole)
    return jax.tree.map(lambda leaf: leaf / _number(microbatches), total)
