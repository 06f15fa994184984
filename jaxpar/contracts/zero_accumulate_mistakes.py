"""Wrong answers to accumulation of gradients in shards that people write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake

Loss = Callable[[Any, Any], Array]
Reduce = Callable[[Any], Any]


def _here(tree: Any, axis: str) -> Any:
    return lax.pcast(tree, axis, to="varying")


def _number(microbatches: Any) -> int:
    return len(jax.tree.leaves(microbatches)[0])


def _over(tree: Any, n: int) -> Any:
    return jax.tree.map(lambda leaf: leaf / n, tree)


def _own(tree: Any, axis: str) -> Any:
    """This device's rows of whole leaves."""

    def rows(leaf: Array) -> Array:
        size = len(leaf) // lax.axis_size(axis)
        return lax.dynamic_slice_in_dim(leaf, lax.axis_index(axis) * size, size)

    return jax.tree.map(rows, tree)


def _sums(tree: Any, axis: str) -> Any:
    return jax.tree.map(lambda leaf: lax.psum_scatter(leaf, axis, tiled=True), tree)


def _means(tree: Any, axis: str) -> Any:
    return _over(_sums(tree, axis), lax.axis_size(axis))


def _add_up(loss_fn: Loss, params: Any, microbatches: Any, reduce: Reduce, zeros: Any) -> Any:
    """The mean over the microbatches of what `reduce` makes of each gradient."""

    def add(total: Any, microbatch: Any) -> tuple[Any, None]:
        gradients = reduce(jax.grad(loss_fn)(params, microbatch))
        return jax.tree.map(jnp.add, total, gradients), None

    total, _ = lax.scan(add, zeros, microbatches)
    return _over(total, _number(microbatches))


def _row_sums(
    loss_fn: Loss, params: Any, microbatches: Any, reduce: Reduce, axis: str, cast: bool = True
) -> Any:
    """The same, where `reduce` leaves this device's rows."""
    zeros = jax.tree.map(jnp.zeros_like, _own(params, axis))
    return _add_up(loss_fn, _here(params, axis) if cast else params, microbatches, reduce, zeros)


def _not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    return _row_sums(loss_fn, params, microbatches, lambda g: _sums(g, axis), axis)


def _microbatches_not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    mean = _row_sums(loss_fn, params, microbatches, lambda g: _means(g, axis), axis)
    return jax.tree.map(lambda leaf: leaf * _number(microbatches), mean)


def _constant_n(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    return _over(_not_divided(loss_fn, params, microbatches, axis=axis), 8)


def _last_microbatch_only(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    last = jax.tree.map(lambda leaf: leaf[-1], microbatches)
    return _means(jax.grad(loss_fn)(_here(params, axis), last), axis)


def _own_rows_of_own_gradient(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    return _row_sums(loss_fn, params, microbatches, lambda g: _own(g, axis), axis)


def _scatters_sums(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    def reduce(sums: Any) -> Any:
        return _means(_here(sums, axis), axis)

    return _row_sums(loss_fn, params, microbatches, reduce, axis, cast=False)


def _returns_whole_gradient(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    mean = _row_sums(loss_fn, params, microbatches, lambda g: _means(g, axis), axis)
    return jax.tree.map(lambda rows: lax.all_gather(rows, axis, tiled=True), mean)


def _reduces_then_slices(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    def reduce(gradients: Any) -> Any:
        return _own(lax.pmean(gradients, axis), axis)

    return _row_sums(loss_fn, params, microbatches, reduce, axis)


def _gathers_gradients(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    def reduce(gradients: Any) -> Any:
        return _own(jax.tree.map(lambda g: lax.all_gather(g, axis).mean(0), gradients), axis)

    return _row_sums(loss_fn, params, microbatches, reduce, axis)


def _gathers_batch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    whole = lax.all_gather(microbatches, axis, axis=1, tiled=True)
    return _row_sums(loss_fn, params, whole, lambda g: _own(g, axis), axis)


def _full_accumulator(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    params = _here(params, axis)
    zeros = jax.tree.map(jnp.zeros_like, params)
    return _means(_add_up(loss_fn, params, microbatches, lambda g: g, zeros), axis)


def _first_outside(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    params = _here(params, axis)

    def rows(microbatch: Any) -> Any:
        return _means(jax.grad(loss_fn)(params, microbatch), axis)

    def add(total: Any, microbatch: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, rows(microbatch)), None

    first = rows(jax.tree.map(lambda leaf: leaf[0], microbatches))
    total, _ = lax.scan(add, first, jax.tree.map(lambda leaf: leaf[1:], microbatches))
    return _over(total, _number(microbatches))


def _stacks_rows(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    params = _here(params, axis)
    each = lax.map(lambda part: _means(jax.grad(loss_fn)(params, part), axis), microbatches)
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), each)


def _vmaps_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    params = _here(params, axis)
    each = jax.vmap(lambda part: jax.grad(loss_fn)(params, part))(microbatches)
    return _means(jax.tree.map(lambda leaf: leaf.mean(axis=0), each), axis)


def _unrolls_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    params = _here(params, axis)
    each = [
        _means(jax.grad(loss_fn)(params, jax.tree.map(lambda x, i=i: x[i], microbatches)), axis)
        for i in range(_number(microbatches))
    ]
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *each)


def _keeps_every_microbatch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    def mean_loss(params: Any) -> Array:
        return lax.map(lambda part: loss_fn(params, part), microbatches).mean()

    return _means(jax.grad(mean_loss)(_here(params, axis)), axis)


MISTAKES = (
    Mistake("gradients_not_divided", _not_divided, "values"),
    Mistake("microbatches_not_divided", _microbatches_not_divided, "values"),
    Mistake("constant_n", _constant_n, "values"),
    Mistake("last_microbatch_only", _last_microbatch_only, "values"),
    Mistake("rows_of_own_gradient", _own_rows_of_own_gradient, "values"),
    Mistake("mean_of_sums", _scatters_sums, "values"),
    Mistake("returns_whole_gradient", _returns_whole_gradient, "sharding"),
    Mistake("reduces_each_then_slices", _reduces_then_slices, "communication"),
    Mistake("gathers_gradients", _gathers_gradients, "communication"),
    Mistake("gathers_batch", _gathers_batch, "communication"),
    Mistake("full_accumulator", _full_accumulator, "memory"),
    Mistake("first_microbatch_outside", _first_outside, "memory"),
    Mistake("stacks_gradients", _stacks_rows, "memory"),
    Mistake("vmaps_microbatches", _vmaps_microbatches, "memory"),
    Mistake("unrolls_microbatches", _unrolls_microbatches, "memory"),
    Mistake("keeps_every_microbatch", _keeps_every_microbatch, "memory"),
)
