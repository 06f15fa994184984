"""Wrong answers to the update of ZeRO's stage 1 that people write."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxpar.contracts.base import Mistake

Optimizer = optax.GradientTransformation
Result = tuple[Any, Any]


def _own(tree: Any, axis: str, first: Any = None) -> Any:
    """This device's rows of whole leaves, or those from another device on."""
    place = lax.axis_index(axis) if first is None else first

    def rows(leaf: Array) -> Array:
        size = len(leaf) // lax.axis_size(axis)
        return lax.dynamic_slice_in_dim(leaf, place * size, size)

    return jax.tree.map(rows, tree)


def _sums(grads: Any, axis: str) -> Any:
    return jax.tree.map(lambda g: lax.psum_scatter(g, axis, tiled=True), grads)


def _means(grads: Any, axis: str) -> Any:
    return _over(_sums(grads, axis), lax.axis_size(axis))


def _over(tree: Any, n: int) -> Any:
    return jax.tree.map(lambda leaf: leaf / n, tree)


def _gather(tree: Any, axis: str) -> Any:
    return jax.tree.map(lambda rows: lax.all_gather(rows, axis, tiled=True), tree)


def _gather_state(state: Any, axis: str) -> Any:
    return jax.tree.map(lambda x: lax.all_gather(x, axis, tiled=True) if x.ndim else x, state)


def _own_state(state: Any, axis: str) -> Any:
    return jax.tree.map(lambda x: _own(x, axis) if x.ndim else x, state)


def _new_rows(
    rows: Any, params: Any, opt_shard: Any, optimizer: Optimizer, axis: str
) -> tuple[Any, Any]:
    own = _own(params, axis)
    updates, state = optimizer.update(rows, opt_shard, own)
    return optax.apply_updates(own, updates), state


def _finish(rows: Any, params: Any, opt_shard: Any, optimizer: Optimizer, axis: str) -> Result:
    new, state = _new_rows(rows, params, opt_shard, optimizer, axis)
    return _gather(new, axis), state


def _not_divided(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    return _finish(_sums(grads, axis), params, opt_shard, optimizer, axis)


def _constant_n(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    return _finish(_over(_sums(grads, axis), 8), params, opt_shard, optimizer, axis)


def _stays_local(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    return _finish(_own(grads, axis), params, opt_shard, optimizer, axis)


def _params_not_passed(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    updates, state = optimizer.update(_means(grads, axis), opt_shard)
    return _gather(optax.apply_updates(_own(params, axis), updates), axis), state


def _first_rows(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    own = _own(params, axis, first=0)
    updates, state = optimizer.update(_means(grads, axis), opt_shard, own)
    return _gather(optax.apply_updates(own, updates), axis), state


def _rows_not_gathered(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    return _new_rows(_means(grads, axis), params, opt_shard, optimizer, axis)


def _others_not_updated(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    new, state = _new_rows(_means(grads, axis), params, opt_shard, optimizer, axis)

    def put(whole: Array, rows: Array) -> Array:
        start = lax.axis_index(axis) * len(rows)
        whole = lax.pcast(whole, axis, to="varying")
        return lax.dynamic_update_slice_in_dim(whole, rows, start, 0)

    return jax.tree.map(put, params, new), state


def _updates_returned(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    updates, state = optimizer.update(_means(grads, axis), opt_shard, _own(params, axis))
    return _gather(updates, axis), state


def _old_state(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    new, _ = _finish(_means(grads, axis), params, opt_shard, optimizer, axis)
    return new, opt_shard


def _returns_whole_state(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    new, state = _finish(_means(grads, axis), params, opt_shard, optimizer, axis)
    return new, _gather_state(state, axis)


def _reduces_then_slices(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    return _finish(_own(lax.pmean(grads, axis), axis), params, opt_shard, optimizer, axis)


def _gathers_gradients(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    mean = jax.tree.map(lambda g: lax.all_gather(g, axis).mean(axis=0), grads)
    return _finish(_own(mean, axis), params, opt_shard, optimizer, axis)


def _gathers_state(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    whole = _gather_state(opt_shard, axis)
    updates, state = optimizer.update(lax.pmean(grads, axis), whole, params)
    return optax.apply_updates(params, updates), _own_state(state, axis)


def _adds_rows_in_zeros(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    new, state = _new_rows(_means(grads, axis), params, opt_shard, optimizer, axis)

    def join(rows: Array) -> Array:
        start = lax.axis_index(axis) * len(rows)
        zeros = jnp.zeros((lax.axis_size(axis) * len(rows), *rows.shape[1:]), rows.dtype)
        zeros = lax.pcast(zeros, axis, to="varying")
        return lax.psum(lax.dynamic_update_slice_in_dim(zeros, rows, start, 0), axis)

    return jax.tree.map(join, new), state


MISTAKES = (
    Mistake("gradients_not_divided", _not_divided, "values"),
    Mistake("constant_n", _constant_n, "values"),
    Mistake("update_by_own_gradients", _stays_local, "values"),
    Mistake("params_not_passed", _params_not_passed, "values"),
    Mistake("first_rows_everywhere", _first_rows, "values"),
    Mistake("rows_not_gathered", _rows_not_gathered, "values"),
    Mistake("others_not_updated", _others_not_updated, "values"),
    Mistake("updates_returned", _updates_returned, "values"),
    Mistake("old_state_returned", _old_state, "values"),
    Mistake("returns_whole_state", _returns_whole_state, "sharding"),
    Mistake("reduces_then_slices", _reduces_then_slices, "communication"),
    Mistake("gathers_gradients", _gathers_gradients, "communication"),
    Mistake("gathers_state", _gathers_state, "communication"),
    Mistake("adds_rows_in_zeros", _adds_rows_in_zeros, "communication"),
)
