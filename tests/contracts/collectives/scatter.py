"""Answers to scatter: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.collectives.common import from_root
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


@right
def scatter_tiled(x, *, axis, root):
    return lax.psum_scatter(from_root(x, axis, root), axis, tiled=True).reshape(x.shape[1:])


@right
def scatter_by_all_to_all(x, *, axis, root):
    return lax.all_to_all(x, axis, split_axis=0, concat_axis=0)[root]


@right
def scatter_by_tiled_all_to_all(x, *, axis, root):
    return lax.all_to_all(x, axis, 0, 0, tiled=True)[root]


@right
def scatter_by_single_permutes(x, *, axis, root):
    y = x[root]
    for i in range(lax.axis_size(axis)):
        arrived = lax.ppermute(x[i], axis, [(root, i)])
        y = jnp.where(lax.axis_index(axis) == i, arrived, y)
    return y


@right
def scatter_by_sum_of_permutes(x, *, axis, root):
    return sum(lax.ppermute(x[i], axis, [(root, i)]) for i in range(lax.axis_size(axis)))


@right
def scatter_by_shifts(x, *, axis, root):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = x[i]
    for k in range(1, n):
        arrived = hop(x[(i + k) % n], axis, k)
        y = jnp.where((i - root) % n == k, arrived, y)
    return y


@right
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


@wrong("communication")
def scatter_in_free_pieces(x, *, axis, root):
    flat = from_root(x, axis, root).reshape(-1, 4)
    whole = jnp.stack([lax.psum(piece, axis) for piece in flat]).reshape(x.shape)
    return whole[lax.axis_index(axis)]


@wrong("communication")
def scatter_chunk_by_chunk(x, *, axis, root):
    chunks = [lax.psum(from_root(chunk, axis, root), axis) for chunk in x]
    return jnp.stack(chunks)[lax.axis_index(axis)]


@wrong("communication")
def scatter_through_neighbours(x, *, axis, root):
    n = lax.axis_size(axis)
    distance = (lax.axis_index(axis) - root) % n
    moving = x
    for k in range(1, n):
        arrived = hop(moving, axis)
        moving = jnp.where(distance == k, arrived, moving)
    return moving[lax.axis_index(axis)]


@wrong("communication")
def scatter_under_condition(x, *, axis, root):
    part = lax.cond(
        jnp.sum(x) > 1e9,
        lambda: lax.psum(from_root(x, axis, root), axis)[lax.axis_index(axis)],
        lambda: jnp.zeros_like(x[0]),
    )
    return part + lax.psum_scatter(from_root(x, axis, root), axis)
