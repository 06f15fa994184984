"""Layers in segments, of which only the inputs are kept for the gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import (
    BadCall,
    Communication,
    Contract,
    Expected,
    FlopsLimit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.case import ArraySpec, Case, Function
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.contracts.layers import gentle_mlp
from jaxpar.mesh import varying_axes
from jaxpar.parallel.remat import remat_layers


def _layer_after_layer(case: Case, layer_fn: Callable, params: Any, x: Array) -> list[Expected]:
    (n,) = case.sizes.values()
    own = jax.tree.map(lambda leaf: jnp.stack(jnp.split(leaf, n, axis=1)), params)

    def on_one_device(params: Any, x: Array) -> Array:
        return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]

    return [Expected(jax.vmap(on_one_device)(own, x.reshape(n, -1, *x.shape[1:])))]


# Each device has its own layers: equal ones would have their gradients summed in the loop.
def _mlp(layers: int, b: int, d: int, segments: int) -> Case:
    params = {
        "up": ArraySpec((layers, 2 * d, 16 * d), "l d_dp f"),
        "down": ArraySpec((layers, 2 * 16 * d, d), "l f_dp d"),
    }
    layer_fn = Function("jaxpar.contracts.layers:gentle_mlp")
    args = {"layer_fn": layer_fn, "params": params, "x": ArraySpec((2 * b, d), "b_dp d")}
    return Case("dp=2", args, {"segments": segments})


def _wave(layers: int, b: int, d: int, segments: int) -> Case:
    params = (
        ArraySpec((layers, 3 * d, d), "l d_fsdp f"),
        ArraySpec((layers, 3 * d), "l f_fsdp"),
    )
    layer_fn = Function("jaxpar.contracts.layers:gentle_wave")
    args = {"layer_fn": layer_fn, "params": params, "x": ArraySpec((3 * b, d), "b_fsdp d")}
    return Case("fsdp=3", args, {"segments": segments})


def nested_mlp(params: dict[str, list], x: Array) -> Array:
    """As `gentle_mlp`, of parameters that are nested."""
    up, inner = params["block"]
    return gentle_mlp({"up": up, "down": inner["down"]}, x)


def _nested(axis: str, layers: int, b: int, t: int, d: int, segments: int) -> Case:
    params = {
        "block": [
            ArraySpec((layers, 4 * d, 16 * d), f"l d_{axis} f"),
            {"down": ArraySpec((layers, 4 * 16 * d, d), f"l f_{axis} d")},
        ]
    }
    layer_fn = Function(f"{__name__}:nested_mlp")
    x = ArraySpec((4 * b, t, d), f"b_{axis} t d")
    return Case(
        f"{axis}=4", {"layer_fn": layer_fn, "params": params, "x": x}, {"segments": segments}
    )


def scaled_sine(params: list[Array], x: Array) -> Array:
    """Each element by itself, for x [d]."""
    (scale,) = params
    return x + jnp.sin(scale * x) / 8


def _sines(axis: str, layers: int, segments: int, dtype: str) -> Case:
    """So small that its bytes are free, and without a matrix product: only the values count."""
    params, x = (
        [ArraySpec((layers, 5 * 3), f"l d_{axis}", dtype)],
        ArraySpec((15,), f"d_{axis}", dtype),
    )
    args = {"layer_fn": Function(f"{__name__}:scaled_sine"), "params": params, "x": x}
    return Case(f"{axis}=5", args, {"segments": segments})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp"))
    segments, size, layers = pick(rng, range(129, 140)), pick(rng, (5, 6)), pick(rng, (3, 5))
    return (
        _nested(axis, segments * size, 11, 12, 4, segments),
        _sines(other, layers, 1, "float32"),
        _sines(other, layers, layers, "bfloat16"),
    )


CONTRACT = Contract(
    kind="program",
    task="call layer after layer, and keep only the inputs of `segments` segments for the gradient",
    reference=remat_layers,
    oracle=_layer_after_layer,
    cases=(_mlp(layers=512, b=128, d=4, segments=128), _wave(layers=192, b=48, d=8, segments=24)),
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
        BadCall(_wave(layers=10, b=4, d=8, segments=4), "segments does not divide the layers"),
        BadCall(_wave(layers=9, b=4, d=8, segments=18), "more segments than layers"),
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


LayerFn = Callable[[Any, Array], Array]


def _scan(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]


def _layers(params: Any) -> int:
    return len(jax.tree.leaves(params)[0])


@wrong("values")
def one_layer_of_each(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """You call only one layer of each segment; call all l layers."""
    first = jax.tree.map(lambda leaf: leaf[:: _layers(params) // segments], params)
    return _scan(jax.checkpoint(layer_fn), first, x)


@wrong("memory")
def keeps_everything(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """Everything that the layers need for their gradients is kept, by a checkpoint whose policy
    saves it or without any; let a jax.checkpoint of a whole segment, without a policy, keep its
    input alone."""
    return _scan(layer_fn, params, x)


@wrong("memory")
def checkpoints_each_layer(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """You keep the input of every layer, all l of them; checkpoint a segment of l / segments
    layers, so that only the inputs of segments are kept."""
    return _scan(jax.checkpoint(layer_fn), params, x)


@wrong("memory")
def checkpoints_the_whole(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """One checkpoint is around all layers, so the backward pass goes forward through all of them
    and then holds what all keep; checkpoint each segment."""
    return jax.checkpoint(partial(_scan, layer_fn))(params, x)


def _segmented(
    layer_fn: LayerFn, params: Any, x: Array, *, segments: int, policy: Any = None
) -> Array:
    """A checkpoint around each segment, which is right without a policy."""
    split = jax.tree.map(lambda leaf: leaf.reshape(segments, -1, *leaf.shape[1:]), params)
    segment_fn = jax.checkpoint(partial(_scan, layer_fn), policy=policy)
    return _scan(segment_fn, split, x)


@wrong("memory")
def segments_of_that_size(layer_fn: LayerFn, params: Any, x: Array, *, segments: int) -> Array:
    """`segments` is the number of segments, not of the layers in one: each has l / segments
    layers."""
    return _segmented(layer_fn, params, x, segments=_layers(params) // segments)


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

    def own_of_all(leaf: Array) -> Array:
        axes = tuple(sorted(varying_axes(leaf)))
        return lax.all_gather(leaf, axes)[lax.axis_index(axes)]

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
    whole = _layers(params) // segments * segments
    return _segmented(
        layer_fn, jax.tree.map(lambda leaf: leaf[:whole], params), x, segments=segments
    )
