"""Layers in as little memory as a bounded amount of work allows: an open challenge."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax

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
from jaxpar.contracts.base import Communication, Contract, FlopsLimit, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.parallel.remat import frugal_layers


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp"))
    layers, few = pick(rng, (72, 80, 84)), pick(rng, (1, 5, 7))
    return (
        nested_case(axis, layers, 44, 12, 4),
        _tanh_case(other, few),
        sines_case(other, 6, "bfloat16"),
    )


def _tanh_case(axis: str, layers: int) -> Case:
    """Layers whose input cannot be found from their output, where bytes are free."""
    params = (
        ArraySpec((layers, 5 * 3, 3), f"l d_{axis} f"),
        ArraySpec((layers, 5 * 3), f"l f_{axis}"),
    )
    layer_fn = Function("jaxpar.contracts.layers:tanh_layer")
    x = ArraySpec((5 * 2, 3), f"b_{axis} d")
    return Case(f"{axis}=5", {"layer_fn": layer_fn, "params": params, "x": x})


CONTRACT = Contract(
    kind="program",
    task="call layer after layer, and let the gradient take little memory",
    reference=frugal_layers,
    oracle=layer_after_layer,
    challenge="temp_bytes",
    cases=(wave_case(layers=512, b=512, d=8), mlp_case(layers=96, b=512, d=4)),
    draw=_drawn,
    gradient=("params", "x"),
    communication=Communication("nothing is sent", forward=((),)),
    memory=MemoryLimit(
        "with the gradient, at most 1.5 times the library's bytes of intermediate results; it "
        "keeps the inputs of sqrt(l) segments, and computes each layer twice more",
        multiple=1.5,
        programs=("gradient",),
    ),
    flops=FlopsLimit(
        "with the gradient, at most 1.45 times the library's: each layer is computed once, and at "
        "most four times more",
        multiple=1.45,
    ),
    tolerance=2,  # each layer rounds its sum to bfloat16, and the gradient once more
    hints=(
        "Two loops, as in remat_layers: jax.checkpoint of a segment, and inside it jax.checkpoint "
        "of a layer. With sqrt(l) segments, what both loops keep is about equal. It passes.",
        "Segments may have segments: with three levels of l^(1/3), each loop keeps l^(1/3) inputs. "
        "Each level more computes every layer once more, and the limit allows two more.",
        "All levels need not be equally long: one that keeps less for each turn may have more of "
        "them. What a segment holds beside inputs are its parameters and their gradients.",
    ),
    minimal="It need not be the least. With k levels of checkpoints the inputs that are kept are "
    "about k * l^(1/k), and each layer is computed k times more; the limit allows k = 4.",
    harder="With checkpoints anywhere, and not in loops of equal length, how many layers can be "
    "differentiated with c inputs kept and each layer computed at most r times again? (Griewank "
    "and Walther 2000: binomial(c + r, c).)",
)


def in_levels(layer_fn: LayerFn, params: Any, x: Array, lengths: tuple[int, ...]) -> Array:
    """Loops in loops, with a checkpoint around the inside of each; the last takes what is left."""
    if not lengths:
        return scan(jax.checkpoint(layer_fn), params, x)
    split = jax.tree.map(lambda leaf: leaf.reshape(lengths[0], -1, *leaf.shape[1:]), params)

    def inner(part: Any, x: Array) -> Array:
        return in_levels(layer_fn, part, x, lengths[1:])

    return scan(jax.checkpoint(inner), split, x)


def near_root(layers: int, levels: int = 2) -> int:
    """The divisor of `layers` that is nearest to its root."""
    divisors = (k for k in range(1, layers + 1) if layers % k == 0)
    return min(divisors, key=lambda k: abs(k - layers ** (1 / levels)))


@wrong("values")
def first_of_each_segment(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """You call only the first layer of each segment; call all l layers."""
    step = near_root(count_layers(params))
    return scan(jax.checkpoint(layer_fn), jax.tree.map(lambda leaf: leaf[::step], params), x)


@wrong("gradient")
def inputs_without_gradient(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """The gradient stops at the input of the first layer; what saves memory must not cut it."""
    return in_levels(layer_fn, params, lax.stop_gradient(x), (near_root(count_layers(params)),))


@wrong("memory")
def everything_kept(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """Everything that the layers need for their gradients is kept; let jax.checkpoint keep inputs
    alone."""
    return scan(layer_fn, params, x)


@wrong("memory")
def every_input_kept(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """The inputs of all l layers are kept; checkpoint segments, and the layers inside of them."""
    return scan(jax.checkpoint(layer_fn), params, x)


@wrong("memory")
def one_checkpoint_around_all(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """One checkpoint is around all layers, so the backward pass first goes forward through all of
    them, and then holds what all of them keep."""
    return jax.checkpoint(partial(scan, layer_fn))(params, x)


@wrong("memory")
def products_kept(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """The policy of your jax.checkpoint keeps what products give in every layer; without a policy
    it keeps the arguments alone."""
    policy = jax.checkpoint_policies.dots_saveable
    return scan(jax.checkpoint(layer_fn, policy=policy), params, x)


@wrong("communication")
def parameters_of_all(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """The parameters of all devices are gathered, and each device takes its own again; it has them,
    so send nothing."""
    own = jax.tree.map(own_of_all, params)
    return in_levels(layer_fn, own, x, (near_root(count_layers(params)),))


@wrong("flops")
def halves_of_halves(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """Segments are halved again and again, so that each layer is computed about log2(l) times more;
    use fewer levels, with more segments in each."""
    layers = count_layers(params)
    lengths = [near_root(layers)]
    left = layers // lengths[0]
    while left > 1:
        lengths.append(next(k for k in range(2, left + 1) if left % k == 0))
        left //= lengths[-1]
    return in_levels(layer_fn, params, x, tuple(lengths))
