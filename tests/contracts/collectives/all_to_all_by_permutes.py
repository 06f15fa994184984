"""Answers to all_to_all_by_permutes: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


@right
def exchange_by_rolls(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    x = jnp.roll(x, -i, axis=0)
    moved = [hop(x[k], axis, k) for k in range(n)]
    return jnp.roll(jnp.stack(moved[::-1]), i + 1, axis=0)


@right
def exchange_both_ways(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = x
    for k in range(1, n // 2 + 1):
        for shift in {k, n - k}:
            y = y.at[(i - shift) % n].set(hop(x[(i + shift) % n], axis, shift))
    return y


@right
def exchange_in_pairs(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros_like(x)
    for k in range(n):  # devices whose sum is k modulo n exchange
        partner = (k - i) % n
        chunk = lax.dynamic_index_in_dim(x, partner, keepdims=False)
        arrived = lax.ppermute(chunk, axis, [(j, (k - j) % n) for j in range(n)])
        y = lax.dynamic_update_index_in_dim(y, arrived, partner, axis=0)
    return y


@right
def exchange_half_chunks(x, *, axis):
    halves = jnp.split(x, 2, axis=1)
    return jnp.concatenate([exchange_by_rolls(half, axis=axis) for half in halves], axis=1)


@wrong("communication")
def exchange_by_bruck(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    held, k = jnp.roll(x, -i, axis=0), 1
    while k < n:
        moving = jnp.array([j for j in range(n) if j & k])
        held = held.at[moving].set(hop(held[moving], axis, k))
        k *= 2
    return held[(i - jnp.arange(n)) % n]


@wrong("communication")
def exchange_by_ring_of_x(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y, moving = x, x
    for k in range(1, n):
        moving = hop(moving, axis)
        y = y.at[(i - k) % n].set(moving[i])
    return y


@wrong("communication")
def exchange_by_ring_without_waste(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y, moving = x, jnp.roll(x, -i - 1, axis=0)[:-1]
    for k in range(1, n):
        moving = hop(moving, axis)
        y, moving = y.at[(i - k) % n].set(moving[0]), moving[1:]
    return y
