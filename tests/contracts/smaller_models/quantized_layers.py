"""Answers to quantized_layers: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _floats(layer, x):
    return jax.tree.map(
        lambda code, scale: (code.astype(jnp.float32) * scale).astype(x.dtype),
        layer[0],
        jax.tree.map(lambda scale: scale[None], layer[1]),
    )


@right
def with_its_own_backward_pass(layer_fn, codes, scales, x):
    @jax.custom_vjp
    def run(x):
        return lax.scan(lambda x, layer: (layer_fn(_floats(layer, x), x), None), x, stacked)[0]

    def forward(x):
        return lax.scan(lambda x, layer: (layer_fn(_floats(layer, x), x), x), x, stacked)

    def backward(inputs, gradient):
        def step(gradient, kept):
            x, layer = kept
            params = _floats(layer, x)
            return jax.vjp(lambda x: layer_fn(params, x), x)[1](gradient)[0], None

        return (lax.scan(step, gradient, (inputs, stacked), reverse=True)[0],)

    stacked = codes, scales
    run.defvjp(forward, backward)
    return run(x)


@right
def by_leaves(layer_fn, codes, scales, x):
    structure = jax.tree.structure(codes)

    @jax.checkpoint
    def step(x, leaves):
        params = [
            jax.vmap(jnp.multiply, (None, 0))(scale, code.astype(jnp.float32)).astype(x.dtype)
            for code, scale in leaves
        ]
        return layer_fn(structure.unflatten(params), x), None

    pairs = list(zip(jax.tree.leaves(codes), jax.tree.leaves(scales), strict=True))
    return lax.scan(step, x, pairs)[0]


@right
def policy_that_keeps_nothing(layer_fn, codes, scales, x):
    policy = jax.checkpoint_policies.nothing_saveable

    def step(x, layer):
        return layer_fn(_floats(layer, x), x), None

    return lax.scan(jax.checkpoint(step, policy=policy), x, (codes, scales))[0]


@wrong("memory")
def pairs_of_layers(layer_fn, codes, scales, x):
    """All layers in one Python loop, each checkpointed."""

    @jax.checkpoint
    def step(x, layer):
        return layer_fn(_floats(layer, x), x)

    for i in range(len(jax.tree.leaves(codes)[0])):
        x = step(x, jax.tree.map(lambda leaf, i=i: leaf[i], (codes, scales)))
    return x


@wrong("memory")
def everything_saveable(layer_fn, codes, scales, x):
    policy = jax.checkpoint_policies.everything_saveable

    def step(x, layer):
        return layer_fn(_floats(layer, x), x), None

    return lax.scan(jax.checkpoint(step, policy=policy), x, (codes, scales))[0]


@wrong("memory")
def only_the_layer_checkpointed(layer_fn, codes, scales, x):
    again = jax.checkpoint(layer_fn, prevent_cse=False)

    def step(x, layer):
        return again(_floats(layer, x), x), None

    return lax.scan(step, x, (codes, scales))[0]


@wrong("values")
def through_the_codes_without_sign(layer_fn, codes, scales, x):
    def step(x, layer):
        unsigned = jax.tree.map(lambda code: code.astype(jnp.uint8), layer[0])
        return layer_fn(_floats((unsigned, layer[1]), x), x), None

    return lax.scan(jax.checkpoint(step), x, (codes, scales))[0]


@wrong("values")
def matrices_in_float32(layer_fn, codes, scales, x):
    def step(x, layer):
        return layer_fn(_floats(layer, x.astype(jnp.float32)), x), None

    y = x.astype(jnp.float32)
    return lax.scan(jax.checkpoint(step), y, (codes, scales))[0]


@wrong("values")
def two_dims_only(layer_fn, codes, scales, x):
    y = x.reshape(-1, x.shape[-1])

    def step(x, layer):
        return layer_fn(_floats(layer, x), x), None

    return lax.scan(jax.checkpoint(step), y, (codes, scales))[0]


@wrong("values")
def floats_in_bfloat16(layer_fn, codes, scales, x):
    def step(x, layer):
        params = _floats(layer, x.astype(jnp.bfloat16))
        return layer_fn(jax.tree.map(lambda w: w.astype(x.dtype), params), x), None

    return lax.scan(jax.checkpoint(step), x, (codes, scales))[0]


@wrong("memory")
def two_layers_at_once(layer_fn, codes, scales, x):
    """Both become floats before the first of them is called; an odd last one comes alone."""

    def pairs(leaf):
        return leaf[: len(leaf) // 2 * 2].reshape(-1, 2, *leaf.shape[1:])

    @jax.checkpoint
    def step(x, two):
        first, second = (_floats(jax.tree.map(lambda leaf, i=i: leaf[i], two), x) for i in (0, 1))
        first, second = lax.optimization_barrier((first, second))
        return layer_fn(second, layer_fn(first, x)), None

    x = lax.scan(step, x, jax.tree.map(pairs, (codes, scales)))[0]
    if len(jax.tree.leaves(codes)[0]) % 2:
        last = jax.tree.map(lambda leaf: leaf[-1], (codes, scales))
        x = jax.checkpoint(layer_fn)(_floats(last, x), x)
    return x
