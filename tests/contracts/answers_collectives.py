"""Answers to the exercises of lesson 02, by other ways and by clever ways: means, scatters."""

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
}
