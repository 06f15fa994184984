"""Answers to gather: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.collectives.common import from_root
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right
from tests.contracts.ring_and_tree.common import ring_all_gather


@right
def gather_by_mask(x, *, axis, root):
    return lax.all_gather(x, axis) * (lax.axis_index(axis) == root).astype(x.dtype)


@right
def gather_tiled(x, *, axis, root):
    y = lax.all_gather(x, axis, tiled=True).reshape(-1, *x.shape)
    return from_root(y, axis, root)


@right
def gather_in_two_halves(x, *, axis, root):
    halves = [lax.all_gather(half, axis) for half in jnp.split(x, 2)]
    return from_root(jnp.concatenate(halves, axis=1), axis, root)


@right
def gather_by_copies(x, *, axis, root):
    n = lax.axis_size(axis)
    return from_root(lax.all_to_all(jnp.stack([x] * n), axis, 0, 0), axis, root)


@right
def gather_by_slots(x, *, axis, root):
    slots = jnp.zeros((lax.axis_size(axis), *x.shape), x.dtype).at[root].set(x)
    return lax.all_to_all(slots, axis, split_axis=0, concat_axis=0)


@right
def gather_by_single_permutes(x, *, axis, root):
    arrived = [lax.ppermute(x, axis, [(j, root)]) for j in range(lax.axis_size(axis))]
    return jnp.stack(arrived)


@right
def gather_round_the_ring(x, *, axis, root):
    return from_root(ring_all_gather(x, axis), axis, root)


@right
def gather_by_tree(x, *, axis, root):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    held, width = x[None], 1  # held[k] comes from device i + k, both counted from the root
    while width < n:
        senders = range(width, n, 2 * width)
        pairs = [((j + root) % n, (j - width + root) % n) for j in senders]
        held = jnp.concatenate([held, lax.ppermute(held, axis, pairs)])
        width *= 2
    return jnp.where(i == root, jnp.roll(held, root, axis=0), jnp.zeros_like(held))


@wrong("communication")
def gather_by_two_steps_of_all_reduce(x, *, axis, root):
    n = lax.axis_size(axis)
    slots = jnp.zeros((n, *x.shape), x.dtype).at[lax.axis_index(axis)].set(x)
    part = lax.psum_scatter(slots, axis)
    return from_root(lax.all_gather(part, axis), axis, root)


@wrong("communication")
def gather_one_slot_at_a_time(x, *, axis, root):
    n = lax.axis_size(axis)
    y = jnp.stack([lax.psum(from_root(x, axis, j), axis) for j in range(n)])
    return from_root(y, axis, root)


@wrong("communication")
def gather_sends_it_back(x, *, axis, root):
    y = lax.all_gather(x, axis)
    return from_root(y + 0 * hop(y, axis), axis, root)


@wrong("communication")
def gather_by_all_reduce(x, *, axis, root):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = lax.psum(jnp.zeros((n, *x.shape), x.dtype).at[i].set(x), axis)
    return from_root(y, axis, root)


@wrong("values")
def gather_of_eight(x, *, axis, root):
    y = lax.all_gather(x, axis)
    return from_root(jnp.resize(y, (8, *x.shape)), axis, root)
