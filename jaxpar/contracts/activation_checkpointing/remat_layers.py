"""Layers in segments, of which only the inputs are kept for the gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from jaxpar.contracts.activation_checkpointing.common import (
    LayerFn,
    count_layers,
    layer_after_layer,
    mlp_case,
    nested_case,
    own_of_all,
    scan,
    sines_case,
    wave_case,
)
from jaxpar.contracts.base import (
    BadCall,
    Communication,
    Contract,
    FlopsLimit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.case import Case
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.parallel.remat import remat_layers


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp"))
    segments, size, layers = pick(rng, range(129, 140)), pick(rng, (5, 6)), pick(rng, (3, 5))
    return (
        nested_case(axis, segments * size, 11, 12, 4, segments=segments),
        sines_case(other, layers, "float32", segments=1),
        sines_case(other, layers, "bfloat16", segments=layers),
    )


CONTRACT = Contract(
    kind="program",
    task="call layer after layer, and keep only the inputs of `segments` segments for the gradient",
    reference=remat_layers,
    oracle=layer_after_layer,
    cases=(
        mlp_case(layers=512, b=128, d=4, segments=128),
        wave_case(layers=192, b=48, d=8, segments=24),
    ),
    draw=_drawn,
    gradient=("params", "x"),
    communication=Communication("nothing is sent", forward=((),)),
    memory=MemoryLimit(
        "with the gradient, the inputs of all segments, and what the layers of one keep: at most "
        "1.2 times the library's bytes of intermediate results",
        multiple=1.2,
        programs=("gradient",),
    ),
    flops=FlopsLimit(
        "with the gradient, one extra forward pass at most; a second, if intermediate results "
        "take at most 0.9 times the library's bytes",
        traded=(1.25, 0.9),
    ),
    errors=(
        BadCall(wave_case(layers=10, b=4, d=8, segments=4), "segments does not divide the layers"),
        BadCall(wave_case(layers=9, b=4, d=8, segments=18), "more segments than layers"),
    ),
    tolerance=2,  # each layer rounds its sum to bfloat16, and the gradient once more
    hints=(
        "jax.checkpoint(f) keeps the arguments of f for the gradient, and calls f again in the "
        "backward pass. What must f be, so that its argument is the input of a segment?",
        "Reshape each leaf of params to [segments, l / segments, ...]: an outer lax.scan goes over "
        "the segments, an inner one over the layers of one.",
        "The outer loop's function is jax.checkpoint of the inner loop. Python loops would not do: "
        "on a CPU the compiler merges what is computed twice.",
    ),
    minimal="What is not kept must be computed from what is: each segment needs at least its input "
    "x, and, while its gradient is computed, what its own layers need.",
    harder="Checkpoint in three levels, with cube roots: what is kept then, and how often is each "
    "layer computed?",
)


@wrong("values")
def one_layer_of_each(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """You call only one layer of each segment; call all l layers."""
    first = jax.tree.map(lambda leaf: leaf[:: count_layers(params) // segments], params)
    return scan(jax.checkpoint(layer_fn), first, x)


@wrong("memory")
def keeps_everything(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """Everything that the layers need for their gradients is kept, by a checkpoint whose policy
    saves it or without any; let a jax.checkpoint of a whole segment, without a policy, keep its
    input alone."""
    return scan(layer_fn, params, x)


@wrong("memory")
def checkpoints_each_layer(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """You keep the input of every layer, all l of them; checkpoint a segment of l / segments
    layers, so that only the inputs of segments are kept."""
    return scan(jax.checkpoint(layer_fn), params, x)


@wrong("memory")
def checkpoints_the_whole(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """One checkpoint is around all layers, so the backward pass goes forward through all of them
    and then holds what all keep; checkpoint each segment."""
    return jax.checkpoint(partial(scan, layer_fn))(params, x)


def _segmented(
    layer_fn: LayerFn, params: Any, x: Array, *, segments: int, policy: Any = None
) -> Array:
    """A checkpoint around each segment, which is right without a policy."""
    split = jax.tree.map(lambda leaf: leaf.reshape(segments, -1, *leaf.shape[1:]), params)
    segment_fn = jax.checkpoint(partial(scan, layer_fn), policy=policy)
    return scan(segment_fn, split, x)


@wrong("memory")
def segments_of_that_size(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """`segments` is the number of segments, not of the layers in one: each has l / segments
    layers."""
    return _segmented(layer_fn, params, x, segments=count_layers(params) // segments)


@wrong("memory")
def saves_the_products(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """The policy of your jax.checkpoint keeps what products give in every layer; without a policy
    it keeps the arguments alone."""
    policy = jax.checkpoint_policies.dots_saveable
    return _segmented(layer_fn, params, x, segments=segments, policy=policy)


@wrong("communication")
def gathers_all_parameters(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """The parameters of all devices are gathered, and each device takes its own again; it has them,
    so send nothing."""
    return _segmented(layer_fn, jax.tree.map(own_of_all, params), x, segments=segments)


@wrong("flops")
def checkpoints_twice(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """One checkpoint is around another, so the forward pass is computed three times, and no less is
    kept than with two; one checkpoint, around each segment, is enough."""
    return jax.checkpoint(partial(_segmented, layer_fn, segments=segments))(params, x)


@wrong("errors")
def rest_left_out(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """Where `segments` does not divide the layers, raise ValueError yourself; otherwise another
    error is raised, or the last layers are left out without a word."""
    whole = count_layers(params) // segments * segments
    return _segmented(
        layer_fn, jax.tree.map(lambda leaf: leaf[:whole], params), x, segments=segments
    )
