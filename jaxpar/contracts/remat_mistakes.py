"""Wrong answers to activation checkpointing that people write."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import Array, lax

from jaxpar.contracts.base import Mistake
from jaxpar.cost.activations import activation_bytes

LayerFn = Callable[[Any, Array], Array]


def _scan(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]


def _saved(layer_fn: LayerFn, params: Any, x: Array, *, segments: int, policy: Any = None) -> Array:
    """Right, but for the policy."""
    split = jax.tree.map(lambda leaf: leaf.reshape(segments, -1, *leaf.shape[1:]), params)
    segment_fn = jax.checkpoint(partial(_scan, layer_fn), policy=policy)
    return _scan(segment_fn, split, x)


def _layers(params: Any) -> int:
    return len(jax.tree.leaves(params)[0])


def _keeps_everything(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    return _scan(layer_fn, params, x)


def _checkpoints_each_layer(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    return _scan(jax.checkpoint(layer_fn), params, x)


def _checkpoints_the_whole(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    return jax.checkpoint(partial(_scan, layer_fn))(params, x)


def _segments_of_that_size(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    return _saved(layer_fn, params, x, segments=_layers(params) // segments)


def _saves_the_products(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    policy = jax.checkpoint_policies.dots_saveable
    return _saved(layer_fn, params, x, segments=segments, policy=policy)


def _checkpoints_twice(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    return jax.checkpoint(partial(_saved, layer_fn, segments=segments))(params, x)


def _one_layer_of_each(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    first = jax.tree.map(lambda leaf: leaf[:: _layers(params) // segments], params)
    return _scan(jax.checkpoint(layer_fn), first, x)


def _rest_left_out(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    whole = _layers(params) // segments * segments
    return _saved(layer_fn, jax.tree.map(lambda leaf: leaf[:whole], params), x, segments=segments)


REMAT_LAYERS = (
    Mistake("one_layer_of_each", _one_layer_of_each, "values"),
    Mistake("keeps_everything", _keeps_everything, "memory"),
    Mistake("checkpoints_each_layer", _checkpoints_each_layer, "memory"),
    Mistake("checkpoints_the_whole", _checkpoints_the_whole, "memory"),
    Mistake("segments_of_that_size", _segments_of_that_size, "memory"),
    Mistake("saves_the_products", _saves_the_products, "memory"),
    Mistake("checkpoints_twice", _checkpoints_twice, "flops"),
    Mistake("rest_left_out", _rest_left_out, "errors"),
)


def _one_layer(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    return activation_bytes(b, s, h, heads, 1, **how)


def _all_split(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    how["sequence_parallel"] = True
    return activation_bytes(b, s, h, heads, layers, **how)


def _none_split_by_sequence(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    how["sequence_parallel"] = False
    return activation_bytes(b, s, h, heads, layers, **how)


def _attention_whole(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    kept = activation_bytes(b, s, h, heads, layers, **how)
    if how["remat"] != "none":
        return kept
    how["remat"] = "selective"
    without = activation_bytes(b, s, h, heads, layers, **how)
    return without + how["tp"] * (kept - without)


def _selective_keeps_attention(
    b: int, s: int, h: int, heads: int, layers: int, **how: Any
) -> float:
    if how["remat"] == "selective":
        how["remat"] = "none"
    return activation_bytes(b, s, h, heads, layers, **how)


def _full_split(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    kept = activation_bytes(b, s, h, heads, layers, **how)
    split = how["remat"] == "full" and how["sequence_parallel"]
    return kept / how["tp"] if split else kept


def _full_keeps_nothing(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    return 0.0 if how["remat"] == "full" else activation_bytes(b, s, h, heads, layers, **how)


def _masks_left_out(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    """No byte for any dropout mask: 8 for 10, and 4 for 5."""
    kept, x = activation_bytes(b, s, h, heads, layers, **how), layers * s * b * h
    if how["remat"] == "full":
        return kept
    outside = 2 * x / (how["tp"] if how["sequence_parallel"] else 1)
    mask = layers * heads * s * s * b / how["tp"] if how["remat"] == "none" else 0
    return kept - outside - mask


def _elements(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    return activation_bytes(b, s, h, heads, layers, **how) / 2


def _four_bytes(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    return activation_bytes(b, s, h, heads, layers, **how) * 2


def _unknown_is_none(b: int, s: int, h: int, heads: int, layers: int, **how: Any) -> float:
    if how["remat"] not in ("selective", "full"):
        how["remat"] = "none"
    return activation_bytes(b, s, h, heads, layers, **how)


ACTIVATION_BYTES = (
    Mistake("one_layer", _one_layer, "values"),
    Mistake("all_split", _all_split, "values"),
    Mistake("none_split_by_sequence", _none_split_by_sequence, "values"),
    Mistake("attention_whole", _attention_whole, "values"),
    Mistake("selective_keeps_attention", _selective_keeps_attention, "values"),
    Mistake("full_split", _full_split, "values"),
    Mistake("full_keeps_nothing", _full_keeps_nothing, "values"),
    Mistake("masks_left_out", _masks_left_out, "values"),
    Mistake("activations_as_elements", _elements, "values"),
    Mistake("activations_in_32_bits", _four_bytes, "values"),
    Mistake("unknown_remat_is_none", _unknown_is_none, "values"),
)
