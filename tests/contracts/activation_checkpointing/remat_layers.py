"""Answers to remat_layers: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _scan(layer_fn, params, x):
    return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]


def _layers(params):
    return len(jax.tree.leaves(params)[0])


def _split(params, segments):
    if segments < 1 or _layers(params) % segments:
        raise ValueError(f"{segments} segments of {_layers(params)} layers")
    return jax.tree.map(lambda leaf: leaf.reshape(segments, -1, *leaf.shape[1:]), params)


def _segmented(layer_fn, params, x, segments, **how):
    return _scan(jax.checkpoint(partial(_scan, layer_fn), **how), _split(params, segments), x)


@right
def layers_checkpointed_too(layer_fn, params, x, *, segments):
    return _segmented(jax.checkpoint(layer_fn), params, x, segments)


def _with_own_backward(layer_fn, params, x, segments, kept_dtype):
    """Keeps the input of each segment in this dtype."""
    segment = partial(_scan, layer_fn)

    @jax.custom_vjp
    def run(params, x):
        return _scan(segment, params, x)

    def forward(params, x):
        y, inputs = lax.scan(lambda x, part: (segment(part, x), x.astype(kept_dtype)), x, params)
        return y, (params, inputs)

    def backward(kept, gradient):
        def step(gradient, part_and_input):
            part, x = part_and_input
            of_params, of_x = jax.vjp(segment, part, x.astype(gradient.dtype))[1](gradient)
            return of_x, of_params

        of_x, of_params = lax.scan(step, gradient, kept, reverse=True)
        return of_params, of_x

    run.defvjp(forward, backward)
    return run(_split(params, segments), x)


@right
def with_its_own_backward_pass(layer_fn, params, x, *, segments):
    return _with_own_backward(layer_fn, params, x, segments, x.dtype)


@wrong("memory")
def sqrt_of_layers(layer_fn, params, x, *, segments):
    _split(params, segments)
    nearest = 2 ** round(math.log2(_layers(params)) / 2)
    return _segmented(layer_fn, params, x, nearest)


@wrong("memory")
def one_boundary_in_two(layer_fn, params, x, *, segments):
    _split(params, segments)
    return _segmented(layer_fn, params, x, segments // 2)


@wrong("memory")
def layers_by_their_index(layer_fn, params, x, *, segments):
    size = _layers(_split(params, segments)) and _layers(params) // segments

    def layer(x, i):
        return layer_fn(jax.tree.map(lambda leaf: leaf[i], params), x), None

    @jax.checkpoint
    def segment(x, first):
        return lax.scan(layer, x, first + jnp.arange(size))[0]

    starts = jnp.arange(segments) * size
    return lax.scan(lambda x, first: (segment(x, first), None), x, starts)[0]


@wrong("gradient")
def gradient_of_rough_boundaries(layer_fn, params, x, *, segments):
    return _with_own_backward(layer_fn, params, x, segments, jnp.bfloat16)


@wrong("flops")
def three_levels(layer_fn, params, x, *, segments):
    def inner(part, x):
        return _segmented(jax.checkpoint(layer_fn), part, x, 2)

    return _scan(jax.checkpoint(inner), _split(params, segments), x)
