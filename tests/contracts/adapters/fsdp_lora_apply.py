"""Answers to fsdp_lora_apply: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter, gathered
from tests.contracts.answers import right


@right
def leaf_by_leaf(layer_fn, base_shards, adapters, x, *, axis):
    base = jax.tree.map(lax.stop_gradient, base_shards)
    adapters = jax.tree.map(lambda leaf: enter(leaf, axis), adapters)

    @jax.checkpoint
    def body(x, layer):
        shards, adapter = layer
        whole = jax.tree.map(lambda leaf: gathered(leaf, axis), shards)
        return layer_fn(whole, adapter, x), None

    return lax.scan(body, x, (base, adapters))[0]


@right
def frozen_after_the_gather(layer_fn, base_shards, adapters, x, *, axis):
    adapters = enter(adapters, axis)

    def layer(shards, adapter, x):
        return layer_fn(lax.stop_gradient(gathered(shards, axis)), adapter, x)

    again = jax.checkpoint(layer, prevent_cse=False)
    return lax.scan(lambda x, parts: (again(*parts, x), None), x, (base_shards, adapters))[0]


@right
def by_number(layer_fn, base_shards, adapters, x, *, axis):
    base, adapters = lax.stop_gradient(base_shards), enter(adapters, axis)

    @jax.checkpoint
    def layer(x, i):
        shards, adapter = jax.tree.map(lambda leaf: leaf[i], (base, adapters))
        return layer_fn(gathered(shards, axis), adapter, x), None

    return lax.scan(layer, x, jnp.arange(len(jax.tree.leaves(adapters)[0])))[0]


@right
def with_its_own_derivative(layer_fn, base_shards, adapters, x, *, axis):
    adapters = enter(adapters, axis)

    @jax.custom_vjp
    def layer(shards, adapter, x):
        return layer_fn(gathered(shards, axis), adapter, x)

    def backward(kept, g):
        shards, adapter, x = kept
        whole = gathered(shards, axis)
        return None, *jax.vjp(lambda *some: layer_fn(whole, *some), adapter, x)[1](g)

    layer.defvjp(lambda *arrays: (layer(*arrays), arrays), backward)
    return lax.scan(lambda x, parts: (layer(*parts, x), None), x, (base_shards, adapters))[0]


@wrong("values")
def of_dicts(layer_fn, base_shards, adapters, x, *, axis):
    assert isinstance(base_shards, dict)
    return leaf_by_leaf(layer_fn, base_shards, adapters, x, axis=axis)


@wrong("values")
def in_bfloat16(layer_fn, base_shards, adapters, x, *, axis):
    def narrow(leaf):
        wide = leaf.dtype == jnp.float32
        return leaf.astype(jnp.bfloat16).astype(leaf.dtype) if wide else leaf

    return leaf_by_leaf(layer_fn, jax.tree.map(narrow, base_shards), adapters, x, axis=axis)


@wrong("memory")
def unrolled(layer_fn, base_shards, adapters, x, *, axis):
    base, adapters = lax.stop_gradient(base_shards), enter(adapters, axis)

    @jax.checkpoint
    def layer(shards, adapter, x):
        return layer_fn(gathered(shards, axis), adapter, x)

    for i in range(len(jax.tree.leaves(adapters)[0])):
        x = layer(*jax.tree.map(lambda leaf, i=i: leaf[i], (base, adapters)), x)
    return x


@wrong("memory")
def checkpoint_of_the_layer_alone(layer_fn, base_shards, adapters, x, *, axis):
    base, adapters = lax.stop_gradient(base_shards), enter(adapters, axis)

    def body(x, layer):
        shards, adapter = layer
        return jax.checkpoint(layer_fn)(gathered(shards, axis), adapter, x), None

    return lax.scan(body, x, (base, adapters))[0]


@wrong("communication")
def gathered_twice(layer_fn, base_shards, adapters, x, *, axis):
    base, adapters = lax.stop_gradient(base_shards), enter(adapters, axis)

    @jax.checkpoint
    def body(x, layer):
        shards, adapter = layer
        once, again = gathered((shards, shards), axis)
        whole = jax.tree.map(jnp.maximum, once, again)
        return layer_fn(whole, adapter, x), None

    return lax.scan(body, x, (base, adapters))[0]


@wrong("flops")
def every_layer_twice(layer_fn, base_shards, adapters, x, *, axis):
    def layer(base, adapter, x):
        finite = jnp.isfinite(layer_fn(base, adapter, x)).all()
        return jnp.where(finite, layer_fn(base, adapter, x), jnp.nan)

    return leaf_by_leaf(layer, base_shards, adapters, x, axis=axis)
