"""Wrong answers to the exercises of lesson 02 that people write: locations and all-to-alls."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import Mistake

Located = tuple[jax.Array, jax.Array]


def _highest_index(x: jax.Array, *, axis: str) -> Located:
    largest = lax.pmax(x, axis)
    return largest, lax.pmax(jnp.where(x == largest, lax.axis_index(axis), -1), axis)


def _others_vote_zero(x: jax.Array, *, axis: str) -> Located:
    largest = lax.pmax(x, axis)
    return largest, lax.pmin(jnp.where(x == largest, lax.axis_index(axis), 0), axis)


def _adds_indices(x: jax.Array, *, axis: str) -> Located:
    largest = lax.pmax(x, axis)
    return largest, lax.psum(jnp.where(x == largest, lax.axis_index(axis), 0), axis)


def _never_agrees(x: jax.Array, *, axis: str) -> Located:
    largest = lax.pmax(x, axis)
    return largest, jnp.where(x == largest, lax.axis_index(axis), lax.axis_size(axis))


def _index_as_float(x: jax.Array, *, axis: str) -> Located:
    largest, i = lax.pmax(x, axis), lax.axis_index(axis).astype(x.dtype)
    return largest, lax.pmin(jnp.where(x == largest, i, jnp.inf), axis)


def _index_of_element(x: jax.Array, *, axis: str) -> Located:
    return lax.pmax(x, axis), lax.pmax(jnp.argmax(x, axis=0).astype(jnp.int32), axis)


def _one_maximum_for_all(x: jax.Array, *, axis: str) -> Located:
    largest = lax.pmax(jnp.max(x), axis)
    holder = jnp.where(jnp.max(x) == largest, lax.axis_index(axis), lax.axis_size(axis))
    return largest, lax.pmin(holder, axis)


def _gathers_for_location(x: jax.Array, *, axis: str) -> Located:
    everything = lax.all_gather(x, axis)
    return jnp.max(everything, axis=0), jnp.argmax(everything, axis=0).astype(jnp.int32)


def _slots_for_location(x: jax.Array, *, axis: str) -> Located:
    slots = jnp.zeros((lax.axis_size(axis), *x.shape), x.dtype)
    everything = lax.psum(slots.at[lax.axis_index(axis)].set(x), axis)
    return jnp.max(everything, axis=0), jnp.argmax(everything, axis=0).astype(jnp.int32)


def _ring(n: int, k: int) -> list[tuple[int, int]]:
    return [(j, (j + k) % n) for j in range(n)]


def _steps(x: jax.Array, axis: str, towards: int, back: int) -> jax.Array:
    """In step k, chunk i + towards * k moves k on, to the place i + back * k."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros_like(x).at[i].set(x[i])
    for k in range(1, n):
        chunk = lax.ppermute(x[(i + towards * k) % n], axis, _ring(n, k))
        y = y.at[(i + back * k) % n].set(chunk)
    return y


def _in_arrival_order(x: jax.Array, *, axis: str) -> jax.Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    arrived = [x[i]]
    for k in range(1, n):
        arrived.append(lax.ppermute(x[(i + k) % n], axis, _ring(n, k)))
    return jnp.stack(arrived)


def _chunk_for_another(x: jax.Array, *, axis: str) -> jax.Array:
    return _steps(x, axis, towards=-1, back=-1)


def _placed_by_target(x: jax.Array, *, axis: str) -> jax.Array:
    return _steps(x, axis, towards=1, back=1)


def _own_chunk_to_all(x: jax.Array, *, axis: str) -> jax.Array:
    return _steps(x, axis, towards=0, back=-1)


def _chunk_by_step(x: jax.Array, *, axis: str) -> jax.Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros_like(x)
    for k in range(n):
        y = y.at[(i - k) % n].set(lax.ppermute(x[k], axis, _ring(n, k)))
    return y


def _keeps_nothing(x: jax.Array, *, axis: str) -> jax.Array:
    y = _steps(x, axis, towards=1, back=-1)
    return y.at[lax.axis_index(axis)].set(0)


def _exchange_cuts_gradient(x: jax.Array, *, axis: str) -> jax.Array:
    return _steps(lax.stop_gradient(x), axis, towards=1, back=-1)


def _one_collective(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.all_to_all(x, axis, split_axis=0, concat_axis=0)


def _gathers_everything(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.all_gather(x, axis)[:, lax.axis_index(axis)]


def _whole_x_each_step(x: jax.Array, *, axis: str) -> jax.Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros_like(x).at[i].set(x[i])
    for k in range(1, n):
        y = y.at[(i - k) % n].set(lax.ppermute(x, axis, _ring(n, k))[i])
    return y


REDUCE_MAX_LOCATION = (
    Mistake("highest_index", _highest_index, "values"),
    Mistake("others_vote_zero", _others_vote_zero, "values"),
    Mistake("adds_indices", _adds_indices, "values"),
    Mistake("never_agrees", _never_agrees, "values"),
    Mistake("index_as_float", _index_as_float, "values"),
    Mistake("index_of_element", _index_of_element, "values"),
    Mistake("one_maximum_for_all", _one_maximum_for_all, "values"),
    Mistake("gathers_for_location", _gathers_for_location, "communication"),
    Mistake("slots_for_location", _slots_for_location, "communication"),
)
ALL_TO_ALL_BY_PERMUTES = (
    Mistake("in_arrival_order", _in_arrival_order, "values"),
    Mistake("chunk_for_another", _chunk_for_another, "values"),
    Mistake("placed_by_target", _placed_by_target, "values"),
    Mistake("own_chunk_to_all", _own_chunk_to_all, "values"),
    Mistake("chunk_by_step", _chunk_by_step, "values"),
    Mistake("keeps_nothing", _keeps_nothing, "values"),
    Mistake("exchange_cuts_gradient", _exchange_cuts_gradient, "gradient"),
    Mistake("one_collective", _one_collective, "communication"),
    Mistake("gathers_everything", _gathers_everything, "communication"),
    Mistake("whole_x_each_step", _whole_x_each_step, "communication"),
)
