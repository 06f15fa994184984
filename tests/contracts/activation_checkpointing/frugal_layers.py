"""Answers to frugal_layers: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.activation_checkpointing.common import count_layers, scan
from jaxpar.contracts.activation_checkpointing.frugal_layers import in_levels, near_root
from jaxpar.contracts.base import wrong
from jaxpar.mesh import varying_axes
from tests.contracts.answers import right


@right
def three_levels(layer_fn, params, x):
    layers = count_layers(params)
    outer = near_root(layers, 3)
    return in_levels(layer_fn, params, x, (outer, near_root(layers // outer)))


@right
def four_levels(layer_fn, params, x):
    layers = count_layers(params)
    outer = near_root(layers, 4)
    middle = near_root(layers // outer, 3)
    return in_levels(layer_fn, params, x, (outer, middle, near_root(layers // outer // middle)))


@right
def with_its_own_backward_pass(layer_fn, params, x):
    """Keeps the inputs of segments, and computes those of layers again."""
    segments = near_root(count_layers(params))
    split = jax.tree.map(lambda leaf: leaf.reshape(segments, -1, *leaf.shape[1:]), params)

    def segment(part, x):
        return scan(jax.checkpoint(layer_fn), part, x)

    @jax.custom_vjp
    def run(params, x):
        return scan(segment, params, x)

    def forward(params, x):
        y, inputs = lax.scan(lambda x, part: (segment(part, x), x), x, params)
        return y, (params, inputs)

    def backward(kept, gradient):
        def step(gradient, part_and_input):
            of_params, of_x = jax.vjp(segment, *part_and_input)[1](gradient)
            return of_x, of_params

        of_x, of_params = lax.scan(step, gradient, kept, reverse=True)
        return of_params, of_x

    run.defvjp(forward, backward)
    return run(split, x)


@wrong("gradient")
def layers_undone(layer_fn, params, x):
    """Keeps nothing: it finds the input of a layer from its output, as if a layer added little."""

    @jax.custom_vjp
    def run(params, x):
        return scan(layer_fn, params, x)

    def forward(params, x):
        y = scan(layer_fn, params, x)
        return y, (params, y)

    def backward(kept, gradient):
        params, y = kept

        def step(state, layer):
            y, gradient = state
            x = y
            for _ in range(3):
                x = y - (layer_fn(layer, x) - x)
            of_layer, of_x = jax.vjp(layer_fn, layer, x)[1](gradient)
            return (x, of_x), of_layer

        (_, of_x), of_params = lax.scan(step, (y, gradient), params, reverse=True)
        return of_params, of_x

    run.defvjp(forward, backward)
    return run(params, x)


@wrong("gradient")
def inputs_in_half_the_bytes(layer_fn, params, x):
    """Keeps the input of each layer in bfloat16."""

    @jax.custom_vjp
    def run(params, x):
        return scan(layer_fn, params, x)

    def forward(params, x):
        y, inputs = lax.scan(lambda x, p: (layer_fn(p, x), x.astype(jnp.bfloat16)), x, params)
        return y, (params, inputs)

    def backward(kept, gradient):
        def step(gradient, layer_and_input):
            layer, x = layer_and_input
            of_layer, of_x = jax.vjp(layer_fn, layer, x.astype(gradient.dtype))[1](gradient)
            return of_x, of_layer

        of_x, of_params = lax.scan(step, gradient, kept, reverse=True)
        return of_params, of_x

    run.defvjp(forward, backward)
    return run(params, x)


@wrong("memory")
def two_segments(layer_fn, params, x):
    layers = count_layers(params)
    return in_levels(layer_fn, params, x, (2 if layers % 2 == 0 else 1,))


@wrong("flops")
def levels_of_one(layer_fn, params, x):
    """Checkpoints around the same segment, which keep no less."""
    return in_levels(layer_fn, params, x, (near_root(count_layers(params)), 1, 1, 1))


@wrong("communication")
def kept_by_the_neighbour(layer_fn, params, x):
    """Half of what is kept is sent to another device and back."""
    (axis,) = varying_axes(x)
    n = lax.axis_size(axis)

    @jax.custom_vjp
    def run(params, x):
        return scan(layer_fn, params, x)

    def forward(params, x):
        def step(x, p):
            there = lax.ppermute(x, axis, [(i, (i + 1) % n) for i in range(n)])
            return layer_fn(p, x), there

        y, inputs = lax.scan(step, x, params)
        return y, (params, inputs)

    def backward(kept, gradient):
        def step(gradient, layer_and_input):
            layer, there = layer_and_input
            x = lax.ppermute(there, axis, [((i + 1) % n, i) for i in range(n)])
            of_layer, of_x = jax.vjp(layer_fn, layer, x)[1](gradient)
            return of_x, of_layer

        of_x, of_params = lax.scan(step, gradient, kept, reverse=True)
        return of_params, of_x

    run.defvjp(forward, backward)
    return run(params, x)
