"""Wrong answers to layers gathered one at a time, and to hybrid gradients, that people write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake

LayerFn = Callable[[Any, Array], Array]


def _scan(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """Layer after layer; each layer's input is kept, and no more."""
    body = jax.checkpoint(lambda x, layer: (layer_fn(layer, x), None), prevent_cse=False)
    return lax.scan(body, x, params)[0]


def _gathered(shards: Any, axis: str) -> Any:
    return lax.all_gather(shards, axis, tiled=True)


def _gathers_all_layers(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    return _scan(layer_fn, lax.all_gather(param_shards, axis, axis=1, tiled=True), x)


def _keeps_gathered(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    def body(x: Array, shards: Any) -> tuple[Array, None]:
        return layer_fn(_gathered(shards, axis), x), None

    return lax.scan(body, x, param_shards)[0]


def _unrolls_layers(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    def layer(shards: Any, x: Array) -> Array:
        return layer_fn(_gathered(shards, axis), x)

    for i in range(len(jax.tree.leaves(param_shards)[0])):
        x = jax.checkpoint(layer)(jax.tree.map(lambda leaf, i=i: leaf[i], param_shards), x)
    return x


def _gradients_all_reduced(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    @jax.custom_vjp
    def gather(shards: Any) -> Any:
        return _gathered(shards, axis)

    def backward(_: None, gradients: Any) -> tuple[Any]:
        def rows(gradient: Array) -> Array:
            size = len(gradient) // lax.axis_size(axis)
            total = lax.pcast(lax.psum(gradient, axis), axis, to="varying")
            return lax.dynamic_slice_in_dim(total, lax.axis_index(axis) * size, size)

        return (jax.tree.map(rows, gradients),)

    gather.defvjp(lambda shards: (gather(shards), None), backward)
    return _scan(lambda shards, x: layer_fn(gather(shards), x), param_shards, x)


def _gradients_of_own_batch(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    def gather(shards: Array) -> Array:
        n, size = lax.axis_size(axis), len(shards)
        others = lax.stop_gradient(lax.all_gather(shards, axis, tiled=True))
        here = (n * size, *shards.shape[1:])
        start = lax.axis_index(axis) * size
        mine = lax.dynamic_update_slice_in_dim(
            lax.pcast(jnp.zeros(here, shards.dtype), axis, to="varying"),
            shards - lax.stop_gradient(shards),
            start,
            0,
        )
        return others + mine

    return _scan(lambda s, x: layer_fn(jax.tree.map(gather, s), x), param_shards, x)


def _gradients_averaged(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    def gather(shards: Array) -> Array:
        fixed = lax.stop_gradient(shards)
        return _gathered(fixed + (shards - fixed) / lax.axis_size(axis), axis)

    return _scan(lambda s, x: layer_fn(jax.tree.map(gather, s), x), param_shards, x)


def _rows_interleaved(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    def gather(shards: Array) -> Array:
        return lax.all_gather(shards, axis, axis=1).reshape(-1, *shards.shape[1:])

    return _scan(lambda s, x: layer_fn(jax.tree.map(gather, s), x), param_shards, x)


def _first_layer_always(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    first = _gathered(jax.tree.map(lambda leaf: leaf[0], param_shards), axis)
    return _scan(lambda _, x: layer_fn(first, x), param_shards, x)


def _gathers_activations(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    size = len(x)
    x = lax.all_gather(x, axis, tiled=True)
    x = _scan(lambda s, x: layer_fn(_gathered(s, axis), x), param_shards, x)
    return lax.dynamic_slice_in_dim(x, lax.axis_index(axis) * size, size)


def _gathers_by_sum(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    def gather(shards: Array) -> Array:
        n, size = lax.axis_size(axis), len(shards)
        whole = jnp.zeros((n * size, *shards.shape[1:]), shards.dtype)
        whole = lax.pcast(whole, axis, to="varying")
        start = lax.axis_index(axis) * size
        return lax.psum(lax.dynamic_update_slice_in_dim(whole, shards, start, 0), axis)

    return _scan(lambda s, x: layer_fn(jax.tree.map(gather, s), x), param_shards, x)


def _scattered(grad: Any, axis: str) -> Any:
    return jax.tree.map(lambda g: lax.psum_scatter(g, axis, tiled=True), grad)


def _divided(tree: Any, *axes: str) -> Any:
    n = 1
    for axis in axes:
        n *= lax.axis_size(axis)
    return jax.tree.map(lambda leaf: leaf / n, tree)


def _own_rows(tree: Any, axis: str) -> Any:
    def rows(leaf: Array) -> Array:
        size = len(leaf) // lax.axis_size(axis)
        return lax.dynamic_slice_in_dim(leaf, lax.axis_index(axis) * size, size)

    return jax.tree.map(rows, tree)


def _sum_over_shards(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return lax.pmean(_scattered(grad, shard_axis), replica_axis)


def _sum_over_replicas(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return _divided(lax.psum(_scattered(grad, shard_axis), replica_axis), shard_axis)


def _sum_over_both(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return lax.psum(_scattered(grad, shard_axis), replica_axis)


def _replicas_not_reduced(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return _divided(_scattered(grad, shard_axis), shard_axis)


def _axes_swapped(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return _divided(lax.pmean(_scattered(grad, replica_axis), shard_axis), replica_axis)


def _rows_of_own_gradient(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return lax.pmean(_own_rows(grad, shard_axis), replica_axis)


def _replicas_first(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return _divided(_scattered(lax.pmean(grad, replica_axis), shard_axis), shard_axis)


def _whole_mean_then_rows(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return _own_rows(lax.pmean(grad, (replica_axis, shard_axis)), shard_axis)


def _all_reduce_then_rows(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return lax.pmean(_own_rows(lax.pmean(grad, shard_axis), shard_axis), replica_axis)


def _gathers_replicas(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    rows = _divided(_scattered(grad, shard_axis), shard_axis)
    return jax.tree.map(lambda leaf: lax.all_gather(leaf, replica_axis).mean(axis=0), rows)


def _whole_mean(grad: Any, *, shard_axis: str, replica_axis: str) -> Any:
    return lax.pmean(grad, (replica_axis, shard_axis))


FSDP_APPLY = (
    Mistake("rows_interleaved", _rows_interleaved, "values"),
    Mistake("first_layer_always", _first_layer_always, "values"),
    Mistake("gradients_of_own_batch", _gradients_of_own_batch, "gradient"),
    Mistake("gradients_averaged", _gradients_averaged, "gradient"),
    Mistake("gradients_all_reduced", _gradients_all_reduced, "communication"),
    Mistake("gathers_activations", _gathers_activations, "communication"),
    Mistake("gathers_by_sum", _gathers_by_sum, "communication"),
    Mistake("gathers_all_layers", _gathers_all_layers, "memory"),
    Mistake("keeps_gathered", _keeps_gathered, "memory"),
    Mistake("unrolls_layers", _unrolls_layers, "memory"),
)
HYBRID_GRADIENTS = (
    Mistake("sum_over_shards", _sum_over_shards, "values"),
    Mistake("sum_over_replicas", _sum_over_replicas, "values"),
    Mistake("sum_over_both", _sum_over_both, "values"),
    Mistake("replicas_not_reduced", _replicas_not_reduced, "values"),
    Mistake("axes_swapped", _axes_swapped, "values"),
    Mistake("own_rows_of_own_gradient", _rows_of_own_gradient, "values"),
    Mistake("hybrid_whole_mean", _whole_mean, "sharding"),
    Mistake("replicas_first", _replicas_first, "communication"),
    Mistake("whole_mean_then_rows", _whole_mean_then_rows, "communication"),
    Mistake("all_reduce_then_rows", _all_reduce_then_rows, "communication"),
    Mistake("gathers_replicas", _gathers_replicas, "communication"),
)
