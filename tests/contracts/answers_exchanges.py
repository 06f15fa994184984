"""Answers to the exercises of lesson 02, by other ways and by clever ways: gathers, exchanges."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax


def _from_root(x, axis, root):
    return jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))


def _ring(n, k):
    return [(j, (j + k) % n) for j in range(n)]


def gather_by_mask(x, *, axis, root):
    return lax.all_gather(x, axis) * (lax.axis_index(axis) == root).astype(x.dtype)


def gather_tiled(x, *, axis, root):
    y = lax.all_gather(x, axis, tiled=True).reshape(-1, *x.shape)
    return _from_root(y, axis, root)


def gather_in_two_halves(x, *, axis, root):
    halves = [lax.all_gather(half, axis) for half in jnp.split(x, 2)]
    return _from_root(jnp.concatenate(halves, axis=1), axis, root)


def gather_by_copies(x, *, axis, root):
    n = lax.axis_size(axis)
    return _from_root(lax.all_to_all(jnp.stack([x] * n), axis, 0, 0), axis, root)


def gather_by_slots(x, *, axis, root):
    slots = jnp.zeros((lax.axis_size(axis), *x.shape), x.dtype).at[root].set(x)
    return lax.all_to_all(slots, axis, split_axis=0, concat_axis=0)


def gather_by_single_permutes(x, *, axis, root):
    arrived = [lax.ppermute(x, axis, [(j, root)]) for j in range(lax.axis_size(axis))]
    return jnp.stack(arrived)


def gather_round_the_ring(x, *, axis, root):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y, moving = jnp.zeros((n, *x.shape), x.dtype).at[i].set(x), x
    for k in range(1, n):
        moving = lax.ppermute(moving, axis, _ring(n, 1))
        y = y.at[(i - k) % n].set(moving)
    return _from_root(y, axis, root)


def gather_by_tree(x, *, axis, root):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    held, width = x[None], 1  # held[k] comes from device i + k, both counted from the root
    while width < n:
        senders = range(width, n, 2 * width)
        pairs = [((j + root) % n, (j - width + root) % n) for j in senders]
        held = jnp.concatenate([held, lax.ppermute(held, axis, pairs)])
        width *= 2
    return jnp.where(i == root, jnp.roll(held, root, axis=0), jnp.zeros_like(held))


def gather_by_two_steps_of_all_reduce(x, *, axis, root):
    n = lax.axis_size(axis)
    slots = jnp.zeros((n, *x.shape), x.dtype).at[lax.axis_index(axis)].set(x)
    part = lax.psum_scatter(slots, axis)
    return _from_root(lax.all_gather(part, axis), axis, root)


def gather_one_slot_at_a_time(x, *, axis, root):
    n = lax.axis_size(axis)
    y = jnp.stack([lax.psum(_from_root(x, axis, j), axis) for j in range(n)])
    return _from_root(y, axis, root)


def gather_sends_it_back(x, *, axis, root):
    y = lax.all_gather(x, axis)
    return _from_root(y + 0 * lax.ppermute(y, axis, _ring(lax.axis_size(axis), 1)), axis, root)


def gather_of_eight(x, *, axis, root):
    y = lax.all_gather(x, axis)
    return _from_root(jnp.resize(y, (8, *x.shape)), axis, root)


def location_by_three(x, *, axis):
    largest = -lax.pmin(-x, axis)
    holds = lax.pmax(x, axis) == x
    votes = jnp.where(holds, lax.axis_index(axis), lax.axis_size(axis))
    return largest, lax.pmin(votes, axis)


def location_by_negative_votes(x, *, axis):
    largest = lax.pmax(x, axis)
    votes = jnp.where(x >= largest, -lax.axis_index(axis), -lax.axis_size(axis))
    return largest, -lax.pmax(votes, axis)


def location_by_float_votes(x, *, axis):
    largest, i = lax.pmax(x, axis), lax.axis_index(axis).astype(x.dtype)
    return largest, lax.pmin(jnp.where(x == largest, i, jnp.inf), axis).astype(jnp.int32)


def location_by_all_to_all(x, *, axis):
    chunks = lax.all_to_all(x.reshape(lax.axis_size(axis), -1), axis, 0, 0)
    parts = chunks.max(axis=0), chunks.argmax(axis=0).astype(jnp.int32)
    return tuple(lax.all_gather(part, axis).reshape(x.shape) for part in parts)


def location_by_butterfly(x, *, axis):
    n, width = lax.axis_size(axis), 1
    largest, holder = x, jnp.full(x.shape, lax.axis_index(axis))
    while width < n:
        pairs = _ring(n, width)
        other, theirs = (lax.ppermute(part, axis, pairs) for part in (largest, holder))
        better = (other > largest) | ((other == largest) & (theirs < holder))
        largest, holder = jnp.where(better, other, largest), jnp.where(better, theirs, holder)
        width *= 2
    return largest, holder


def location_device_by_device(x, *, axis):
    n = lax.axis_size(axis)
    everything = jnp.stack([lax.psum(_from_root(x, axis, j), axis) for j in range(n)])
    return everything.max(axis=0), everything.argmax(axis=0).astype(jnp.int32)


def location_in_other_order(x, *, axis):
    return location_by_three(x, axis=axis)[::-1]


def location_as_unsigned(x, *, axis):
    largest, holder = location_by_three(x, axis=axis)
    return largest, holder.astype(jnp.uint32)


def exchange_by_rolls(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    x = jnp.roll(x, -i, axis=0)
    moved = [lax.ppermute(x[k], axis, _ring(n, k)) for k in range(n)]
    return jnp.roll(jnp.stack(moved[::-1]), i + 1, axis=0)


def exchange_both_ways(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = x
    for k in range(1, n // 2 + 1):
        for shift in {k, n - k}:
            y = y.at[(i - shift) % n].set(lax.ppermute(x[(i + shift) % n], axis, _ring(n, shift)))
    return y


def exchange_in_pairs(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros_like(x)
    for k in range(n):  # devices whose sum is k modulo n exchange
        partner = (k - i) % n
        chunk = lax.dynamic_index_in_dim(x, partner, keepdims=False)
        arrived = lax.ppermute(chunk, axis, [(j, (k - j) % n) for j in range(n)])
        y = lax.dynamic_update_index_in_dim(y, arrived, partner, axis=0)
    return y


def exchange_half_chunks(x, *, axis):
    halves = jnp.split(x, 2, axis=1)
    return jnp.concatenate([exchange_by_rolls(half, axis=axis) for half in halves], axis=1)


def exchange_by_bruck(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    held, k = jnp.roll(x, -i, axis=0), 1
    while k < n:
        moving = jnp.array([j for j in range(n) if j & k])
        held = held.at[moving].set(lax.ppermute(held[moving], axis, _ring(n, k)))
        k *= 2
    return held[(i - jnp.arange(n)) % n]


def exchange_by_ring_of_x(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y, moving = x, x
    for k in range(1, n):
        moving = lax.ppermute(moving, axis, _ring(n, 1))
        y = y.at[(i - k) % n].set(moving[i])
    return y


def exchange_by_ring_without_waste(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y, moving = x, jnp.roll(x, -i - 1, axis=0)[:-1]
    for k in range(1, n):
        moving = lax.ppermute(moving, axis, _ring(n, 1))
        y, moving = y.at[(i - k) % n].set(moving[0]), moving[1:]
    return y


def gather_by_all_reduce(x, *, axis, root):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = lax.psum(jnp.zeros((n, *x.shape), x.dtype).at[i].set(x), axis)
    return _from_root(y, axis, root)


def location_by_gather_in_int8(x, *, axis):
    wire = jnp.int8 if lax.axis_size(axis) > 4 else x.dtype
    y = lax.all_gather(x.astype(wire), axis).astype(x.dtype)
    return y.max(0), y.argmax(0).astype(jnp.int32)


def location_by_gather_in_bfloat16(x, *, axis):
    y = lax.all_gather(x.astype(jnp.bfloat16), axis).astype(x.dtype)
    return y.max(0), y.argmax(0).astype(jnp.int32)


def location_of_what_is_close(x, *, axis):
    largest, n = lax.pmax(x, axis), lax.axis_size(axis)
    votes = jnp.where(jnp.isclose(x, largest), lax.axis_index(axis), n)
    return largest, lax.pmin(votes, axis).astype(jnp.int32)


RIGHT = {
    "gather": (
        gather_by_mask,
        gather_tiled,
        gather_in_two_halves,
        gather_by_copies,
        gather_by_slots,
        gather_by_single_permutes,
        gather_round_the_ring,
        gather_by_tree,
    ),
    "reduce_max_location": (
        location_by_three,
        location_by_negative_votes,
        location_by_float_votes,
        location_by_all_to_all,
    ),
    "all_to_all_by_permutes": (
        exchange_by_rolls,
        exchange_both_ways,
        exchange_in_pairs,
        exchange_half_chunks,
    ),
}
WRONG = {
    "gather": {
        gather_by_two_steps_of_all_reduce: "communication",
        gather_one_slot_at_a_time: "communication",
        gather_sends_it_back: "communication",
        gather_by_all_reduce: "communication",
        gather_of_eight: "values",
    },
    "reduce_max_location": {
        location_by_butterfly: "communication",
        location_device_by_device: "communication",
        location_in_other_order: "values",
        location_as_unsigned: "values",
        location_of_what_is_close: "values",
        location_by_gather_in_int8: "values",
        location_by_gather_in_bfloat16: "values",
    },
    "all_to_all_by_permutes": {
        exchange_by_bruck: "communication",
        exchange_by_ring_of_x: "communication",
        exchange_by_ring_without_waste: "communication",
    },
}
