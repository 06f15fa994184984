"""Answers to reduce_max_location: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
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
    chunks = lax.all_to_all(x.reshape(lax.axis_size(axis), -1), axis, 0, 0)
    parts = chunks.max(axis=0), chunks.argmax(axis=0).astype(jnp.int32)
    return tuple(lax.all_gather(part, axis).reshape(x.shape) for part in parts)


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
