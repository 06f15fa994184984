"""Wrong answers to the exercises of lesson 02 that people write: means, scatters and gathers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import Mistake


def _mesh_axes() -> tuple[str, ...]:
    return tuple(jax.sharding.get_abstract_mesh().axis_names)


def _from_root(x: jax.Array, axis: str, root: int) -> jax.Array:
    return jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))


def _sum_for_mean(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.psum(x, axis)


def _axis_by_its_name(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.pmean(x, "tp")


def _constant_n(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.psum(x, axis) / 8


def _divides_by_whole_mesh(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.psum(x, axis) / lax.axis_size(_mesh_axes())


def _means_over_whole_mesh(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.pmean(x, _mesh_axes())


def _divides_twice(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.pmean(x, axis) / lax.axis_size(axis)


def _mean_of_elements(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.pmean(jnp.mean(x), axis)


def _mean_cuts_gradient(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.pmean(lax.stop_gradient(x), axis)


def _gathers_for_mean(x: jax.Array, *, axis: str) -> jax.Array:
    return jnp.mean(lax.all_gather(x, axis), axis=0)


def _scatter_ignores_root(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.psum_scatter(x, axis)


def _scatter_from_zero(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.psum_scatter(_from_root(x, axis, 0), axis)


def _own_chunk(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return x[lax.axis_index(axis)]


def _next_chunk(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.psum_scatter(jnp.roll(_from_root(x, axis, root), -1, axis=0), axis)


def _keeps_chunk_dim(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.psum_scatter(_from_root(x, axis, root), axis)[None]


def _counts_from_root(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.psum_scatter(jnp.roll(_from_root(x, axis, root), root, axis=0), axis)


def _broadcast_for_scatter(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.psum(_from_root(x, axis, root), axis)


def _broadcasts_then_takes(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.psum(_from_root(x, axis, root), axis)[lax.axis_index(axis)]


def _gathers_then_takes(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.all_gather(x, axis)[root, lax.axis_index(axis)]


def _scatter_cuts_gradient(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.psum_scatter(_from_root(lax.stop_gradient(x), axis, root), axis)


def _gather_on_every_device(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.all_gather(x, axis)


def _gather_to_zero(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return _from_root(lax.all_gather(x, axis), axis, 0)


def _gather_counts_from_root(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return _from_root(jnp.roll(lax.all_gather(x, axis), -root, axis=0), axis, root)


def _arrival_order(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    n = lax.axis_size(axis)
    to_next = [(j, (j + 1) % n) for j in range(n)]
    arrived = [x]
    for _ in range(n - 1):
        arrived.append(lax.ppermute(arrived[-1], axis, to_next))
    return _from_root(jnp.stack(arrived), axis, root)


def _concatenates(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return _from_root(lax.all_gather(x, axis, tiled=True), axis, root)


def _others_keep_their_slot(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    i = lax.axis_index(axis)
    y = lax.all_gather(x, axis)
    own = jnp.where((jnp.arange(len(y)) == i).reshape(-1, *(1,) * x.ndim), y, jnp.zeros_like(y))
    return jnp.where(i == root, y, own)


def _slots_by_all_reduce(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    slots = jnp.zeros((lax.axis_size(axis), *x.shape), x.dtype)
    return _from_root(lax.psum(slots.at[lax.axis_index(axis)].set(x), axis), axis, root)


def _gathers_as_equal(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return _from_root(lax.all_gather(x, axis, to="invarying"), axis, root)


def _gather_cuts_gradient(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return _from_root(lax.all_gather(lax.stop_gradient(x), axis), axis, root)


MEAN_OVER_DEVICES = (
    Mistake("sum_for_mean", _sum_for_mean, "values"),
    Mistake("axis_by_its_name", _axis_by_its_name, "values"),
    Mistake("constant_n", _constant_n, "values"),
    Mistake("divides_by_whole_mesh", _divides_by_whole_mesh, "values"),
    Mistake("means_over_whole_mesh", _means_over_whole_mesh, "values"),
    Mistake("divides_twice", _divides_twice, "values"),
    Mistake("mean_of_elements", _mean_of_elements, "values"),
    Mistake("mean_cuts_gradient", _mean_cuts_gradient, "gradient"),
    Mistake("gathers_for_mean", _gathers_for_mean, "communication"),
)
SCATTER = (
    Mistake("scatter_ignores_root", _scatter_ignores_root, "values"),
    Mistake("scatter_from_zero", _scatter_from_zero, "values"),
    Mistake("own_chunk", _own_chunk, "values"),
    Mistake("next_chunk", _next_chunk, "values"),
    Mistake("keeps_chunk_dim", _keeps_chunk_dim, "values"),
    Mistake("counts_from_root", _counts_from_root, "values"),
    Mistake("scatter_cuts_gradient", _scatter_cuts_gradient, "gradient"),
    Mistake("broadcast_for_scatter", _broadcast_for_scatter, "sharding"),
    Mistake("broadcasts_then_takes", _broadcasts_then_takes, "communication"),
    Mistake("gathers_then_takes", _gathers_then_takes, "communication"),
)
GATHER = (
    Mistake("gather_on_every_device", _gather_on_every_device, "values"),
    Mistake("gather_to_zero", _gather_to_zero, "values"),
    Mistake("gather_counts_from_root", _gather_counts_from_root, "values"),
    Mistake("arrival_order", _arrival_order, "values"),
    Mistake("concatenates", _concatenates, "values"),
    Mistake("others_keep_their_slot", _others_keep_their_slot, "values"),
    Mistake("gather_cuts_gradient", _gather_cuts_gradient, "gradient"),
    Mistake("slots_by_all_reduce", _slots_by_all_reduce, "communication"),
    Mistake("gathers_as_equal", _gathers_as_equal, "communication"),
)
