"""Answers to activation checkpointing: right by other ways, wrong by clever ways."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


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


def layers_checkpointed_too(layer_fn, params, x, *, segments):
    return _segmented(jax.checkpoint(layer_fn), params, x, segments)


def with_its_own_backward_pass(layer_fn, params, x, *, segments):
    segment = partial(_scan, layer_fn)

    @jax.custom_vjp
    def run(params, x):
        return _scan(segment, params, x)

    def forward(params, x):
        y, inputs = lax.scan(lambda x, part: (segment(part, x), x), x, params)
        return y, (params, inputs)

    def backward(kept, gradient):
        def step(gradient, part_and_input):
            _, pull = jax.vjp(segment, *part_and_input)
            of_params, of_x = pull(gradient)
            return of_x, of_params

        of_x, of_params = lax.scan(step, gradient, kept, reverse=True)
        return of_params, of_x

    run.defvjp(forward, backward)
    return run(_split(params, segments), x)


def sqrt_of_layers(layer_fn, params, x, *, segments):
    _split(params, segments)
    nearest = 2 ** round(math.log2(_layers(params)) / 2)
    return _segmented(layer_fn, params, x, nearest)


def one_boundary_in_two(layer_fn, params, x, *, segments):
    _split(params, segments)
    return _segmented(layer_fn, params, x, segments // 2)


def layers_by_their_index(layer_fn, params, x, *, segments):
    size = _layers(_split(params, segments)) and _layers(params) // segments

    def layer(x, i):
        return layer_fn(jax.tree.map(lambda leaf: leaf[i], params), x), None

    @jax.checkpoint
    def segment(x, first):
        return lax.scan(layer, x, first + jnp.arange(size))[0]

    starts = jnp.arange(segments) * size
    return lax.scan(lambda x, first: (segment(x, first), None), x, starts)[0]


def gradient_of_rough_boundaries(layer_fn, params, x, *, segments):
    segment = partial(_scan, layer_fn)

    @jax.custom_vjp
    def run(params, x):
        return _scan(segment, params, x)

    def forward(params, x):
        y, inputs = lax.scan(lambda x, part: (segment(part, x), x.astype(jnp.bfloat16)), x, params)
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


def three_levels(layer_fn, params, x, *, segments):
    inner = lambda part, x: _segmented(jax.checkpoint(layer_fn), part, x, 2)  # noqa: E731
    return _scan(jax.checkpoint(inner), _split(params, segments), x)


def as_the_papers_rows(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    rows = {
        ("none", False): s * b * h * (10 + 24 / tp + 5 * heads * s / (h * tp)),
        ("none", True): s * b * h / tp * (34 + 5 * heads * s / h),
        ("selective", False): s * b * h * (10 + 24 / tp),
        ("selective", True): 34 * s * b * h / tp,
        ("full", False): 2 * s * b * h,
        ("full", True): 2 * s * b * h,
    }
    if (remat, sequence_parallel) not in rows:
        raise ValueError(f"remat is {remat}")
    return layers * rows[remat, sequence_parallel]


def array_by_array(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    if remat not in ("none", "selective", "full"):
        raise ValueError(f"{remat=}")
    x, scores, mask = 2 * s * b * h, 2 * s * s * b * heads, s * b * h
    outside = [x, x, x, x, mask, mask]
    inside = [x, x, x, x, 4 * x, 4 * x]
    if remat == "none":
        inside += [scores, scores // 2, scores]
    if remat == "full":
        outside, inside = [x], []
        sequence_parallel = False
    per_layer = sum(outside) / (tp if sequence_parallel else 1) + sum(inside) / tp
    return per_layer * layers


def by_a_key_error(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    of = {"none": 5 * heads * s * s * b, "selective": 0, "full": None}[remat]
    if of is None:
        return layers * 2 * s * b * h
    return layers * (10 * s * b * h / (tp if sequence_parallel else 1) + (24 * s * b * h + of) / tp)


def heads_and_width_swapped(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    how = {"tp": tp, "sequence_parallel": sequence_parallel, "remat": remat}
    return as_the_papers_rows(b, s, heads, h, layers, **how)


def in_gib(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    how = {"tp": tp, "sequence_parallel": sequence_parallel, "remat": remat}
    return as_the_papers_rows(b, s, h, heads, layers, **how) / 2**30


def always_split_by_tp(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    how = {"tp": 1, "sequence_parallel": True, "remat": remat}
    return as_the_papers_rows(b, s, h, heads, layers, **how) / tp


def in_a_text(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    how = {"tp": tp, "sequence_parallel": sequence_parallel, "remat": remat}
    return str(as_the_papers_rows(b, s, h, heads, layers, **how))


def in_the_words_of_an_error(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    if remat not in ("none", "selective", "full"):
        return "raises ValueError"
    how = {"tp": tp, "sequence_parallel": sequence_parallel, "remat": remat}
    return as_the_papers_rows(b, s, h, heads, layers, **how)


def larger_than_any_float(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    return 10**400


RIGHT = {
    "activation_bytes": (as_the_papers_rows, array_by_array),
    "remat_layers": (layers_checkpointed_too, with_its_own_backward_pass),
}
WRONG = {
    "activation_bytes": {
        by_a_key_error: "values",
        heads_and_width_swapped: "values",
        in_gib: "values",
        in_a_text: "values",
        in_the_words_of_an_error: "values",
        larger_than_any_float: "values",
        always_split_by_tp: "values",
    },
    "remat_layers": {
        sqrt_of_layers: "memory",
        one_boundary_in_two: "memory",
        layers_by_their_index: "memory",
        gradient_of_rough_boundaries: "gradient",
        three_levels: "flops",
    },
}
