"""Answers to all_to_all_by_permutes: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
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
    flat = x.reshape(len(x), -1)
    halves = [half for half in jnp.array_split(flat, 2, axis=1) if half.size]
    moved = [exchange_by_rolls(half, axis=axis) for half in halves]
    return jnp.concatenate(moved, axis=1).reshape(x.shape)


@right
def exchange_along_diagonals(x, *, axis):
    """Chunk by chunk, by a permute of one pair each."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = x
    for source in range(n):
        for target in range(n):
            if source != target:
                arrived = lax.ppermute(x[target], axis, [(source, target)])
                y = jnp.where(i == target, y.at[source].set(arrived), y)
    return y


@right
def exchange_of_a_list(x, *, axis):
    """The chunks in a list, picked by the device's index among all turns of it."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    ahead = [lax.dynamic_index_in_dim(x, (i + k) % n, 0, keepdims=False) for k in range(n)]
    arrived = ahead[:1] + lax.optimization_barrier(
        [hop(chunk, axis, k) for k, chunk in enumerate(ahead[1:], start=1)]
    )
    turns = [lambda s, t=t: jnp.stack([s[(t - j) % n] for j in range(n)]) for t in range(n)]
    return lax.switch(i, turns, arrived)


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


@wrong("values")
def exchange_of_rows_in_halves(x, *, axis):
    """Right where dim 1 is there, and even."""
    halves = jnp.split(x, 2, axis=1)
    return jnp.concatenate([exchange_by_rolls(half, axis=axis) for half in halves], axis=1)


@wrong("values")
def exchange_on_last_axis(x, *, axis):
    return exchange_by_rolls(x, axis=jax.sharding.get_abstract_mesh().axis_names[-1])


@wrong("values")
def exchange_by_place_in_mesh(x, *, axis):
    """The rank in the mesh modulo n is the index on its last axis only."""
    n = lax.axis_size(axis)
    i = lax.axis_index(jax.sharding.get_abstract_mesh().axis_names) % n
    y = x
    for k in range(1, n):
        y = y.at[(i - k) % n].set(hop(x[(i + k) % n], axis, k))
    return y


@wrong("values")
def exchange_converted_back(x, *, axis):
    """Sends x as it is, and collects it in float32."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = x.astype(jnp.float32)
    for k in range(1, n):
        y = y.at[(i - k) % n].set(hop(x[(i + k) % n], axis, k).astype(jnp.float32))
    return y.astype(x.dtype)


@wrong("values")
def exchange_with_indices_in_x(x, *, axis):
    """Looks for its chunk by products with a mask, in float32."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def chunk(j):
        mask = (jnp.arange(n) == j % n).astype(jnp.float32)
        return jnp.tensordot(mask, x.astype(jnp.float32), 1).astype(x.dtype)

    moved = [chunk(i), *(hop(chunk(i + k), axis, k) for k in range(1, n))]
    return jnp.stack(moved)[(i - jnp.arange(n)) % n]


@wrong("communication")
def exchange_in_float32(x, *, axis):
    """Right and small in float32; four bytes for two where x is bfloat16."""
    if x.dtype == jnp.bfloat16:
        return exchange_by_rolls(x.astype(jnp.float32), axis=axis).astype(x.dtype)
    return exchange_by_rolls(x, axis=axis)


@wrong("communication")
def exchange_padded_to_eight(x, *, axis):
    """Eight steps in any case; the chunks that do not exist are zeros."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = x
    for k in range(1, max(n, 8)):
        chunk = x[(i + k) % n] if k < n else jnp.zeros_like(x[0])
        arrived = hop(chunk, axis, k)
        y = y.at[(i - k) % n].set(arrived) if k < n else y + 0 * arrived[None]
    return y


@wrong("values")
def exchange_refuses_one_device(x, *, axis):
    if lax.axis_size(axis) < 2:
        raise ValueError(axis)
    return exchange_by_rolls(x, axis=axis)
