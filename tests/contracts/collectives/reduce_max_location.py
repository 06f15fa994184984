"""Answers to reduce_max_location: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.ring_and_tree.common import chunks
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


@right
def location_by_three(x, *, axis):
    largest = -lax.pmin(-x, axis)
    holds = lax.pmax(x, axis) == x
    votes = jnp.where(holds, lax.axis_index(axis), lax.axis_size(axis))
    return largest, lax.pmin(votes, axis)


@right
def location_by_negative_votes(x, *, axis):
    largest = lax.pmax(x, axis)
    votes = jnp.where(x >= largest, -lax.axis_index(axis), -lax.axis_size(axis))
    return largest, -lax.pmax(votes, axis)


@right
def location_by_float_votes(x, *, axis):
    largest, i = lax.pmax(x, axis), lax.axis_index(axis).astype(x.dtype)
    return largest, lax.pmin(jnp.where(x == largest, i, jnp.inf), axis).astype(jnp.int32)


@right
def location_by_all_to_all(x, *, axis):
    arrived = lax.all_to_all(chunks(x, lax.axis_size(axis)), axis, 0, 0)
    parts = arrived.max(axis=0), arrived.argmax(axis=0).astype(jnp.int32)
    return tuple(lax.all_gather(part, axis).ravel()[: x.size].reshape(x.shape) for part in parts)


@right
def location_by_two_pmax(x, *, axis):
    """The highest of the indices counted down from n."""
    largest, n = lax.pmax(x, axis), lax.axis_size(axis)
    turned = jnp.where(x == largest, n - lax.axis_index(axis), 0)
    return largest, n - lax.pmax(turned, axis)


@right
def location_in_small_votes(x, *, axis):
    """A byte for each index, which is enough for all meshes here."""
    largest, i = lax.pmax(x, axis), lax.axis_index(axis).astype(jnp.int8)
    votes = jnp.where(x < largest, jnp.int8(127), i)
    return largest, lax.pmin(votes, axis).astype(jnp.int32)


@wrong("communication")
def location_by_butterfly(x, *, axis):
    n, width = lax.axis_size(axis), 1
    largest, holder = x, jnp.full(x.shape, lax.axis_index(axis))
    while width < n:
        other, theirs = hop((largest, holder), axis, width)
        better = (other > largest) | ((other == largest) & (theirs < holder))
        largest, holder = jnp.where(better, other, largest), jnp.where(better, theirs, holder)
        width *= 2
    return largest, holder


@wrong("values")
def location_in_other_order(x, *, axis):
    return location_by_three(x, axis=axis)[::-1]


@wrong("values")
def location_as_unsigned(x, *, axis):
    largest, holder = location_by_three(x, axis=axis)
    return largest, holder.astype(jnp.uint32)


@wrong("values")
def location_of_what_is_close(x, *, axis):
    largest, n = lax.pmax(x, axis), lax.axis_size(axis)
    votes = jnp.where(jnp.isclose(x, largest), lax.axis_index(axis), n)
    return largest, lax.pmin(votes, axis).astype(jnp.int32)


@wrong("values")
def location_by_gather_in_int8(x, *, axis):
    wire = jnp.int8 if lax.axis_size(axis) > 4 else x.dtype
    y = lax.all_gather(x.astype(wire), axis).astype(x.dtype)
    return y.max(0), y.argmax(0).astype(jnp.int32)


@wrong("values")
def location_by_gather_in_bfloat16(x, *, axis):
    y = lax.all_gather(x.astype(jnp.bfloat16), axis).astype(x.dtype)
    return y.max(0), y.argmax(0).astype(jnp.int32)


@wrong("values")
def location_in_one_number(x, *, axis):
    """The index in the last bits of the value: one all-reduce, and close values are confused."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    if jnp.issubdtype(x.dtype, jnp.integer):
        packed = lax.pmax(x.astype(jnp.float32) * 16 + (n - 1 - i), axis)
        index = n - 1 - (packed % 16).astype(jnp.int32)
        return (packed // 16).astype(x.dtype), index
    largest = lax.pmax(x, axis)
    return largest, lax.pmin(jnp.where(x == largest, i, n), axis)


@wrong("values")
def location_beside_integer(x, *, axis):
    """One all-reduce of integers, if they leave four bits free."""
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return location_by_three(x, axis=axis)
    packed = lax.pmax(16 * x + (15 - lax.axis_index(axis)), axis)
    return packed // 16, 15 - packed % 16


@wrong("values")
def location_of_even_chunks(x, *, axis):
    arrived = lax.all_to_all(x.reshape(lax.axis_size(axis), -1), axis, 0, 0)
    parts = arrived.max(axis=0), arrived.argmax(axis=0).astype(jnp.int32)
    return tuple(lax.all_gather(part, axis).reshape(x.shape) for part in parts)


@wrong("values")
def location_by_place_in_mesh(x, *, axis):
    """The index in a mesh in which the axis is the first."""
    mesh, n = jax.sharding.get_abstract_mesh(), lax.axis_size(axis)
    i = lax.axis_index(mesh.axis_names) // (mesh.size // n)
    largest = lax.pmax(x, axis)
    return largest, lax.pmin(jnp.where(x == largest, i, n), axis)


@wrong("values")
def location_of_floats_only(x, *, axis):
    """Those that do not hold the maximum have minus infinity, which no integer is."""
    largest = lax.pmax(x, axis)
    held = jnp.where(x == largest, x, -jnp.inf)
    votes = jnp.where(held > -jnp.inf, lax.axis_index(axis), lax.axis_size(axis))
    return lax.pmax(held, axis), lax.pmin(votes, axis)


@wrong("values")
def location_of_last_eight(x, *, axis):
    """The index modulo 8, in three bits."""
    largest, holder = location_by_three(x, axis=axis)
    return largest, holder % 8


@wrong("values")
def location_within_rounding(x, *, axis):
    """What is close in float32 counts as the maximum."""
    largest, n = lax.pmax(x, axis), lax.axis_size(axis)
    close = jnp.abs((largest - x).astype(jnp.float32)) <= 1e-6
    near = close | (jnp.issubdtype(x.dtype, jnp.integer) & (largest - x <= 1))
    return largest, lax.pmin(jnp.where(near, lax.axis_index(axis), n), axis)


@wrong("values")
def location_refuses_one_device(x, *, axis):
    if lax.axis_size(axis) < 2:
        raise ValueError(axis)
    return location_by_three(x, axis=axis)


@wrong("communication")
def location_in_float32(x, *, axis):
    """Sends all in float32, also where x is bfloat16."""
    if x.dtype != jnp.bfloat16:
        return location_by_three(x, axis=axis)
    largest, holder = location_by_three(x.astype(jnp.float32), axis=axis)
    return largest.astype(x.dtype), holder


@wrong("communication")
def location_one_by_one(x, *, axis):
    """An all-reduce for each device that asks: is it you?"""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    largest = lax.pmax(x, axis)
    holder = jnp.full(x.shape, n)
    for j in reversed(range(n)):
        holds = lax.pmax(jnp.where((i == j) & (x == largest), 1, 0), axis)
        holder = jnp.where(holds == 1, j, holder)
    return largest, holder
