"""Answers to the exercises of lesson 02: right ones by other ways, wrong ones by clever ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def _from_root(x, axis, root):
    return jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))


def _ring(n, k):
    return [(j, (j + k) % n) for j in range(n)]


def mean_by_pmean(x, *, axis):
    return lax.pmean(x, axis)


def mean_divides_first(x, *, axis):
    return lax.psum(x / lax.axis_size(axis), axis)


def mean_in_two_halves(x, *, axis):
    first, second = jnp.split(x, 2)
    return jnp.concatenate([lax.pmean(first, axis), lax.pmean(second, axis)])


def mean_of_a_tree(x, *, axis):
    parts = lax.pmean({"a": x[:1], "b": x[1:]}, axis)
    return jnp.concatenate([parts["a"], parts["b"]])


def mean_row_by_row(x, *, axis):
    rows = x.reshape(6, -1)
    return lax.map(lambda row: lax.pmean(row, axis), rows).reshape(x.shape)


def mean_typed_varying(x, *, axis):
    return lax.pcast(lax.pmean(x, axis), axis, to="varying")


def mean_in_two_steps(x, *, axis):
    n = lax.axis_size(axis)
    part = lax.psum_scatter(x.reshape(n, -1), axis) / n
    return lax.all_gather(part, axis, to="invarying").reshape(x.shape)


def mean_in_two_varying_steps(x, *, axis):
    part = lax.psum_scatter(x.ravel(), axis, tiled=True) / lax.axis_size(axis)
    return lax.all_gather(part, axis, tiled=True).reshape(x.shape)


def mean_by_all_to_all(x, *, axis):
    n = lax.axis_size(axis)
    part = lax.all_to_all(x.reshape(n, -1), axis, 0, 0).mean(axis=0)
    return lax.all_gather(part, axis).reshape(x.shape)


def mean_by_ring(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    parts = x.reshape(n, -1)
    moving = parts[(i - 1) % n]
    for k in range(2, n + 1):
        moving = lax.ppermute(moving, axis, _ring(n, 1)) + parts[(i - k) % n]
    mean = jnp.zeros_like(parts).at[i].set(moving / n)
    for k in range(1, n):
        moving = lax.ppermute(moving, axis, _ring(n, 1))
        mean = mean.at[(i - k) % n].set(moving / n)
    return mean.reshape(x.shape)


def mean_twice(x, *, axis):
    return lax.pmean(lax.pcast(lax.pmean(x, axis), axis, to="varying"), axis)


def mean_of_dp(x, *, axis):
    return lax.pmean(x, "dp")


def mean_in_half_precision(x, *, axis):
    return lax.pmean(x.astype(jnp.bfloat16), axis).astype(x.dtype)


@jax.custom_vjp
def _passes_all_back(x):
    return x


_passes_all_back.defvjp(lambda x: (x, None), lambda _, g: (jnp.ones_like(g),))


def mean_with_false_gradient(x, *, axis):
    return lax.pmean(_passes_all_back(x), axis)


def scatter_by_mask(x, *, axis, root):
    mask = (lax.axis_index(axis) == root).astype(x.dtype)
    return lax.psum_scatter(x * mask, axis)


def scatter_tiled(x, *, axis, root):
    return lax.psum_scatter(_from_root(x, axis, root), axis, tiled=True).reshape(x.shape[1:])


def scatter_by_all_to_all(x, *, axis, root):
    return lax.all_to_all(x, axis, split_axis=0, concat_axis=0)[root]


def scatter_by_tiled_all_to_all(x, *, axis, root):
    return lax.all_to_all(x, axis, 0, 0, tiled=True)[root]


def scatter_by_single_permutes(x, *, axis, root):
    y = x[root]
    for i in range(lax.axis_size(axis)):
        arrived = lax.ppermute(x[i], axis, [(root, i)])
        y = jnp.where(lax.axis_index(axis) == i, arrived, y)
    return y


def scatter_by_sum_of_permutes(x, *, axis, root):
    return sum(lax.ppermute(x[i], axis, [(root, i)]) for i in range(lax.axis_size(axis)))


def scatter_by_shifts(x, *, axis, root):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = x[i]
    for k in range(1, n):
        arrived = lax.ppermute(x[(i + k) % n], axis, _ring(n, k))
        y = jnp.where((i - root) % n == k, arrived, y)
    return y


def scatter_by_tree(x, *, axis, root):
    n = lax.axis_size(axis)
    i = (lax.axis_index(axis) - root) % n
    held = jnp.roll(x, -root, axis=0)  # held[0] is this device's own, once it has arrived
    width = 1 << (n - 1).bit_length()
    held = jnp.concatenate([held, jnp.zeros((width - n, *x.shape[1:]), x.dtype)])
    while width > 1:
        width //= 2
        senders = [j for j in range(0, n, 2 * width) if j + width < n]
        pairs = [((j + root) % n, (j + width + root) % n) for j in senders]
        size = min(width, max(n - j - width for j in senders))
        arrived = lax.ppermute(held[width : width + size], axis, pairs)
        arrived = jnp.concatenate([arrived, jnp.zeros_like(held[: width - size])])
        held = jnp.where(i % (2 * width) == width, arrived, held[:width])
    return held[0]


def scatter_in_free_pieces(x, *, axis, root):
    flat = _from_root(x, axis, root).reshape(-1, 4)
    whole = jnp.stack([lax.psum(piece, axis) for piece in flat]).reshape(x.shape)
    return whole[lax.axis_index(axis)]


def scatter_chunk_by_chunk(x, *, axis, root):
    chunks = [lax.psum(_from_root(chunk, axis, root), axis) for chunk in x]
    return jnp.stack(chunks)[lax.axis_index(axis)]


def scatter_through_neighbours(x, *, axis, root):
    n = lax.axis_size(axis)
    distance = (lax.axis_index(axis) - root) % n
    moving = x
    for k in range(1, n):
        arrived = lax.ppermute(moving, axis, _ring(n, 1))
        moving = jnp.where(distance == k, arrived, moving)
    return moving[lax.axis_index(axis)]


def scatter_under_condition(x, *, axis, root):
    part = lax.cond(
        jnp.sum(x) > 1e9,
        lambda: lax.psum(_from_root(x, axis, root), axis)[lax.axis_index(axis)],
        lambda: jnp.zeros_like(x[0]),
    )
    return part + lax.psum_scatter(_from_root(x, axis, root), axis)


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


RIGHT = {
    "mean_over_devices": (
        mean_by_pmean,
        mean_divides_first,
        mean_in_two_halves,
        mean_of_a_tree,
        mean_row_by_row,
        mean_typed_varying,
        mean_in_two_steps,
        mean_in_two_varying_steps,
        mean_by_all_to_all,
        mean_by_ring,
    ),
    "scatter": (
        scatter_by_mask,
        scatter_tiled,
        scatter_by_all_to_all,
        scatter_by_tiled_all_to_all,
        scatter_by_single_permutes,
        scatter_by_sum_of_permutes,
        scatter_by_shifts,
        scatter_by_tree,
    ),
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
    "mean_over_devices": {
        mean_twice: "communication",
        mean_of_dp: "values",
        mean_in_half_precision: "values",
        mean_with_false_gradient: "gradient",
    },
    "scatter": {
        scatter_in_free_pieces: "communication",
        scatter_chunk_by_chunk: "communication",
        scatter_through_neighbours: "communication",
        scatter_under_condition: "communication",
    },
    "gather": {
        gather_by_two_steps_of_all_reduce: "communication",
        gather_one_slot_at_a_time: "communication",
        gather_sends_it_back: "communication",
        gather_of_eight: "values",
    },
    "reduce_max_location": {
        location_by_butterfly: "communication",
        location_device_by_device: "communication",
        location_in_other_order: "values",
        location_as_unsigned: "values",
    },
    "all_to_all_by_permutes": {
        exchange_by_bruck: "communication",
        exchange_by_ring_of_x: "communication",
        exchange_by_ring_without_waste: "communication",
    },
}
