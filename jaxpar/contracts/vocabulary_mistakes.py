"""Wrong answers to the vocabulary-parallel embedding that people write."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake


def _here(ids: Array, table: Array, axis: str) -> Array:
    """The rows of the ids in this device's part; below 0 or too large where another has them."""
    return ids - lax.axis_index(axis) * len(table)


def _found(table: Array, rows: Array, mine: Array) -> Array:
    return jnp.where(mine[..., None], table[jnp.where(mine, rows, 0)], 0)


def _part(ids: Array, table: Array, axis: str) -> Array:
    here = _here(ids, table, axis)
    return _found(table, here, (here >= 0) & (here < len(table)))


def _in_whole_table(table: Array, axis: str) -> Array:
    """This device's rows in their place in the whole table, zeros in all others."""
    v = len(table)
    whole = jnp.zeros((lax.axis_size(axis) * v, table.shape[1]), table.dtype)
    whole = lax.pcast(whole, axis, to="varying")
    return lax.dynamic_update_slice_in_dim(whole, table, lax.axis_index(axis) * v, 0)


def _zeros_outside(ids: Array, whole: Array) -> Array:
    ids = jnp.where(ids < 0, len(whole), ids)
    return whole.at[ids].get(mode="fill", fill_value=0)


def _no_offset(ids: Array, table: Array, *, axis: str) -> Array:
    return lax.psum(_found(table, ids, (ids >= 0) & (ids < len(table))), axis)


def _ids_not_masked(ids: Array, table: Array, *, axis: str) -> Array:
    return lax.psum(table[_here(ids, table, axis)], axis)


def _clipped_not_masked(ids: Array, table: Array, *, axis: str) -> Array:
    return lax.psum(table[jnp.clip(_here(ids, table, axis), 0, len(table) - 1)], axis)


def _nan_times_zero(ids: Array, table: Array, *, axis: str) -> Array:
    here = _here(ids, table, axis)
    mine = (here >= 0) & (here < len(table))
    return lax.psum(jnp.take(table, here, axis=0) * mine[..., None].astype(table.dtype), axis)


def _others_hit_row_0(ids: Array, table: Array, *, axis: str) -> Array:
    here = _here(ids, table, axis)
    mine = (here >= 0) & (here < len(table))
    return lax.psum(table[jnp.where(mine, here, 0)], axis)


def _only_above_masked(ids: Array, table: Array, *, axis: str) -> Array:
    here = _here(ids, table, axis)
    return lax.psum(jnp.where((here < len(table))[..., None], table[here], 0), axis)


def _one_row_too_many(ids: Array, table: Array, *, axis: str) -> Array:
    here = _here(ids, table, axis)
    return lax.psum(_found(table, here, (here >= 0) & (here <= len(table))), axis)


def _outside_clipped(ids: Array, table: Array, *, axis: str) -> Array:
    last = lax.axis_size(axis) * len(table) - 1
    return lax.psum(_part(jnp.clip(ids, 0, last), table, axis), axis)


def _outside_hits_row_0(ids: Array, table: Array, *, axis: str) -> Array:
    v = lax.axis_size(axis) * len(table)
    return lax.psum(_part(jnp.where((ids >= 0) & (ids < v), ids, 0), table, axis), axis)


def _rows_dealt_out(ids: Array, table: Array, *, axis: str) -> Array:
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    mine = (ids % n == i) & (ids >= 0) & (ids < n * len(table))
    return lax.psum(_found(table, ids // n, mine), axis)


def _not_summed(ids: Array, table: Array, *, axis: str) -> Array:
    return _part(ids, table, axis)


def _averaged(ids: Array, table: Array, *, axis: str) -> Array:
    return lax.pmean(_part(ids, table, axis), axis)


def _summed_twice(ids: Array, table: Array, *, axis: str) -> Array:
    once = lax.psum(_part(ids, table, axis), axis)
    return lax.psum(lax.pcast(once, axis, to="varying"), axis)


def _cuts_gradient(ids: Array, table: Array, *, axis: str) -> Array:
    return lax.psum(_part(ids, lax.stop_gradient(table), axis), axis)


def _gathers_table(ids: Array, table: Array, *, axis: str) -> Array:
    return _zeros_outside(ids, lax.all_gather(table, axis, tiled=True))


def _gathers_parts(ids: Array, table: Array, *, axis: str) -> Array:
    return lax.all_gather(_part(ids, table, axis), axis).sum(axis=0)


def _mean_at_the_end(ids: Array, table: Array, *, axis: str) -> Array:
    once = lax.psum(_part(ids, table, axis), axis)
    return lax.pmean(lax.pcast(once, axis, to="varying"), axis)


def _sums_in_float32(ids: Array, table: Array, *, axis: str) -> Array:
    part = _part(ids, table, axis)
    return lax.psum(part.astype(jnp.float32), axis).astype(table.dtype)


def _whole_table_of_zeros(ids: Array, table: Array, *, axis: str) -> Array:
    return lax.psum(_zeros_outside(ids, _in_whole_table(table, axis)), axis)


def _whole_one_hot(ids: Array, table: Array, *, axis: str) -> Array:
    v = lax.axis_size(axis) * len(table)
    return lax.psum(jax.nn.one_hot(ids, v, dtype=table.dtype) @ _in_whole_table(table, axis), axis)


EMBEDDING = (
    Mistake("embedding_no_offset", _no_offset, "values"),
    Mistake("embedding_ids_not_masked", _ids_not_masked, "values"),
    Mistake("embedding_clipped_not_masked", _clipped_not_masked, "values"),
    Mistake("embedding_nan_times_zero", _nan_times_zero, "values"),
    Mistake("embedding_others_hit_row_0", _others_hit_row_0, "values"),
    Mistake("embedding_only_above_masked", _only_above_masked, "values"),
    Mistake("embedding_one_row_too_many", _one_row_too_many, "values"),
    Mistake("embedding_outside_clipped", _outside_clipped, "values"),
    Mistake("embedding_outside_hits_row_0", _outside_hits_row_0, "values"),
    Mistake("embedding_rows_dealt_out", _rows_dealt_out, "values"),
    Mistake("embedding_not_summed", _not_summed, "values"),
    Mistake("embedding_averaged", _averaged, "values"),
    Mistake("embedding_summed_twice", _summed_twice, "values"),
    Mistake("embedding_cuts_gradient", _cuts_gradient, "gradient"),
    Mistake("embedding_gathers_table", _gathers_table, "communication"),
    Mistake("embedding_gathers_parts", _gathers_parts, "communication"),
    Mistake("embedding_mean_at_the_end", _mean_at_the_end, "communication"),
    Mistake("embedding_sums_in_float32", _sums_in_float32, "communication"),
    Mistake("embedding_whole_table_of_zeros", _whole_table_of_zeros, "memory"),
    Mistake("embedding_whole_one_hot", _whole_one_hot, "memory"),
)
