"""Answers to gather: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
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
    halves = [lax.all_gather(half, axis) for half in jnp.array_split(x, 2) if half.size]
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
        needed = held[: n - width]  # of the last step, where n is no power of two
        held = jnp.concatenate([held, lax.ppermute(needed, axis, pairs)])
        width *= 2
    return jnp.where(i == root, jnp.roll(held, root, axis=0), jnp.zeros_like(held))


@right
def gather_by_neighbours(x, *, axis, root):
    """Round the ring towards the root, which keeps what comes along."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y, moving = jnp.zeros_like(x, shape=(n, *x.shape)).at[i].set(x), x
    for k in range(1, n):
        moving = hop(moving, axis, -1)
        y = y.at[(i + k) % n].set(moving)
    return jnp.where(i == root, y, jnp.zeros_like(y))


@right
def gather_by_condition(x, *, axis, root):
    y = lax.all_gather(x, axis)
    return lax.cond(lax.axis_index(axis) == root, lambda y: y, jnp.zeros_like, y)


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


@wrong("values")
def gather_of_even_rows(x, *, axis, root):
    halves = [lax.all_gather(half, axis) for half in jnp.split(x, 2)]
    return from_root(jnp.concatenate(halves, axis=1), axis, root)


@wrong("values")
def gather_to_last_half(x, *, axis, root):
    """Every device from the root on, as if it were the last."""
    y = lax.all_gather(x, axis)
    return jnp.where(lax.axis_index(axis) >= root, y, jnp.zeros_like(y))


@wrong("values")
def gather_before_last(x, *, axis, root):
    """The last device is never the root here."""
    return from_root(lax.all_gather(x, axis), axis, min(root, max(lax.axis_size(axis) - 2, 0)))


@wrong("values")
def gather_of_what_is_not_zero(x, *, axis, root):
    """What is left on the other devices is small, but not zero."""
    y = lax.all_gather(x, axis)
    rest = y * jnp.asarray(1e-8, x.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else y
    return jnp.where(lax.axis_index(axis) == root, y, rest)


@wrong("values")
def gather_converted_back(x, *, axis, root):
    """Sends x as it is, and multiplies it by a mask in float32."""
    y = lax.all_gather(x, axis).astype(jnp.float32)
    return (y * (lax.axis_index(axis) == root)).astype(x.dtype)


@wrong("values")
def gather_by_flag(x, *, axis, root):
    """Device 0 keeps everything if the root is 0; all others compare with a root above 0."""
    i, y = lax.axis_index(axis), lax.all_gather(x, axis)
    keeps = (i == root) if root else (i >= 0)
    return jnp.where(keeps, y, jnp.zeros_like(y))


@wrong("values")
def gather_by_place_in_mesh(x, *, axis, root):
    """The index in a mesh in which the axis is the first."""
    mesh, n = jax.sharding.get_abstract_mesh(), lax.axis_size(axis)
    i = lax.axis_index(mesh.axis_names) // (mesh.size // n)
    y = lax.all_gather(x, axis)
    return jnp.where(i == root, y, jnp.zeros_like(y))


@wrong("communication")
def gather_in_float32(x, *, axis, root):
    """Four bytes for two where x is bfloat16."""
    if x.dtype == jnp.bfloat16:
        y = lax.all_gather(x.astype(jnp.float32), axis).astype(x.dtype)
    else:
        y = lax.all_gather(x, axis)
    return from_root(y, axis, root)


@wrong("values")
def gather_refuses_one_device(x, *, axis, root):
    if lax.axis_size(axis) == 1:
        raise ValueError(axis)
    return from_root(lax.all_gather(x, axis), axis, root)


@wrong("values")
def gather_by_tree_of_a_power_of_two(x, *, axis, root):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    held, width = x[None], 1
    while width < n:
        senders = range(width, n, 2 * width)
        pairs = [((j + root) % n, (j - width + root) % n) for j in senders]
        held = jnp.concatenate([held, lax.ppermute(held, axis, pairs)])
        width *= 2
    return jnp.where(i == root, jnp.roll(held, root, axis=0), jnp.zeros_like(held))
