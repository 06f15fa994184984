"""Fully sharded layers, of which one at a time is gathered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.blocks import work_is_split
from jaxpar.contracts.case import ArraySpec, Case, Function, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import (
    Step,
    among_zeros,
    gathered,
    gathered_by_sum,
    gathered_for_all_reduce,
    gathered_for_own_gradient,
    own_shard,
    with_gradient_divided,
)
from jaxpar.parallel import fsdp

LayerFn = Callable[[Any, Array], Array]


def _applied(case: Case, layer_fn: LayerFn, params: Any, x: Array) -> list[Expected]:
    """Each device's part of the batch after all layers; the other axes hold copies."""
    for i in range(len(jax.tree.leaves(params)[0])):
        x = layer_fn(jax.tree.map(lambda leaf, i=i: leaf[i], params), x)
    axis, sizes = case.kwargs["axis"], case.sizes
    local = [n if name == axis else 1 for name, n in sizes.items()]
    blocks = x.reshape(*local, -1, *x.shape[1:])
    return [Expected(jnp.broadcast_to(blocks, (*sizes.values(), *blocks.shape[len(sizes) :])))]


def _mlp_case(mesh: str, axis: str, layers: int, d: int, f: int, b: int) -> Case:
    param_shards = {
        "up": ArraySpec((layers, d, f), f"l d_{axis} f"),
        "down": ArraySpec((layers, f, d), f"l f_{axis} d"),
    }
    args = {
        "layer_fn": Function("jaxpar.contracts.layers:residual_mlp"),
        "param_shards": param_shards,
        "x": ArraySpec((b, d), f"b_{axis} d"),
    }
    return Case(mesh, args, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """More layers than in the stub, of low precision, for x of three dims; one layer alone."""
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, m = pick(rng, ((5, 2), (2, 5), (6, 2)))
    layers, d = pick(rng, range(11, 15)), n * (60 // n + pick(rng, (0, 1)))
    tanh_layers = {
        "layer_fn": Function("jaxpar.contracts.layers:tanh_layer"),
        "param_shards": (
            ArraySpec((layers, d, d), f"l d_{axis} f", "bfloat16"),
            ArraySpec((layers, d), f"l f_{axis}", "bfloat16"),
        ),
        "x": ArraySpec((3 * n, 2, d), f"b_{axis} t d", "bfloat16"),
    }
    return (
        Case(mesh_of(rng, **{axis: n, other: m}), tanh_layers, {"axis": axis}),
        _mlp_case(f"{axis}=1,{other}=2", axis, layers=1, d=21, f=pick(rng, (25, 27)), b=40),
    )


def _other_shards(sizes: Sizes) -> int:
    return (sizes.n() - 1) * sizes.bytes("param_shards")


CONTRACT = Contract(
    kind="program",
    task="return x after all layers, each gathered when it is used, and again backward",
    reference=fsdp.fsdp_apply,
    oracle=_applied,
    cases=(
        _mlp_case("fsdp=4", "fsdp", layers=8, d=32, f=64, b=4 * 4),
        Case(
            "dp=3,tp=2",
            {
                "layer_fn": Function("jaxpar.contracts.layers:scaled_projection"),
                "param_shards": (ArraySpec((7, 48, 48), "l d_dp f"), ArraySpec((7, 48), "l f_dp")),
                "x": ArraySpec((3 * 2, 48), "b_dp d"),
            },
            {"axis": "dp"},
        ),
    ),
    draw=_drawn,
    gradient=("param_shards", "x"),
    communication=Communication(
        "each layer gathered once forward and once backward, and its gradient reduce-scattered",
        forward=((Limit(("all_gather", "permute"), "axis", _other_shards),),),
    ),
    memory=MemoryLimit(
        "two layers' weights and every layer's input: at most twice the library's bytes of "
        "intermediate results, forward and backward",
        multiple=2,
        programs=("forward", "gradient"),
    ),
    flops=work_is_split(),
    hints=(
        "lax.scan over the stacked shards hands you those of one layer at a time; gather them "
        "inside the loop, so that the whole layer is freed before the next one is gathered.",
        "lax.all_gather(shards, axis, tiled=True) takes a pytree. Its derivative is the "
        "reduce-scatter: nothing is left to write for the gradients.",
        "What the gradient needs is kept for every layer, and gathered weights are among it. "
        "jax.checkpoint around the whole body, gather included, keeps shards and x only.",
    ),
    minimal="A device holds 1/n of a layer and needs all of it, twice if it may not keep it; the "
    "parts of each row's gradient must be summed on the device that holds the row.",
    harder="Gather the next layer while this one is computed: carry it through the scan. "
    "What does it take in memory?",
)


def scan_layers(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """Applies layer after layer, and keeps no more than the input of each."""
    body = jax.checkpoint(lambda x, layer: (layer_fn(layer, x), None), prevent_cse=False)
    return lax.scan(body, x, params)[0]


def scan_gathering(
    layer_fn: LayerFn, param_shards: Any, x: Array, axis: str, gather: Step = gathered
) -> Array:
    """Applies layer after layer, and gathers each leaf of a layer by `gather` when it is used."""

    def gathered_layer(shards: Any, x: Array) -> Array:
        return layer_fn(jax.tree.map(lambda shard: gather(shard, axis), shards), x)

    return scan_layers(gathered_layer, param_shards, x)


@wrong("values")
def rows_interleaved(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """The rows of the devices are interleaved; lax.all_gather with tiled=True puts them one after
    the other."""

    def gather(shards: Array, axis: str) -> Array:
        return lax.all_gather(shards, axis, axis=1).reshape(-1, *shards.shape[1:])

    return scan_gathering(layer_fn, param_shards, x, axis, gather)


@wrong("values")
def first_layer_always(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Every turn of the loop uses the first layer; gather the one that lax.scan hands you."""
    first = gathered(jax.tree.map(lambda leaf: leaf[0], param_shards), axis)
    return scan_layers(lambda _, x: layer_fn(first, x), param_shards, x)


@wrong("gradient")
def gradients_of_own_batch(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Each device returns the gradient of its own part of the batch; sum its rows over the devices,
    as the derivative of lax.all_gather does."""
    return scan_gathering(layer_fn, param_shards, x, axis, gathered_for_own_gradient)


@wrong("gradient")
def gradients_averaged(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """The gradient is divided by the number of devices; a layer does not know whether the loss is a
    mean, so return the sum, and let the loss divide."""

    def gather(shards: Array, axis: str) -> Array:
        return gathered(with_gradient_divided(shards, axis), axis)

    return scan_gathering(layer_fn, param_shards, x, axis, gather)


@wrong("communication")
def gradients_all_reduced(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Whole gradients are summed on all devices, and each keeps its rows: twice the bytes of a
    reduce-scatter, which is the derivative of lax.all_gather."""
    return scan_gathering(layer_fn, param_shards, x, axis, gathered_for_all_reduce)


@wrong("communication")
def gathers_activations(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """The batch is gathered, too, and every device computes all of it; a device needs the whole
    layer, but its own part of the batch only."""
    return own_shard(scan_gathering(layer_fn, param_shards, gathered(x, axis), axis), axis)


@wrong("communication")
def gathers_by_sum(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Shards are padded with zeros and summed, which sends twice the bytes of lax.all_gather."""
    return scan_gathering(layer_fn, param_shards, x, axis, gathered_by_sum)


@wrong("memory")
def gathers_all_layers(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """All layers are gathered before the loop, so all of them are held whole at once; gather one
    layer at a time, inside the loop."""
    return scan_layers(layer_fn, gathered(param_shards, axis, 1), x)


@wrong("memory")
def keeps_gathered(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Every gathered layer is kept for the backward pass; wrap gather and layer together in
    jax.checkpoint, inside the scan."""

    def body(x: Array, shards: Any) -> tuple[Array, None]:
        return layer_fn(gathered(shards, axis), x), None

    return lax.scan(body, x, param_shards)[0]


@wrong("memory")
def unrolls_layers(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """A Python loop puts all layers into one program, and the compiler gathers many of them early;
    use lax.scan."""

    def layer(shards: Any, x: Array) -> Array:
        return layer_fn(gathered(shards, axis), x)

    for i in range(len(jax.tree.leaves(param_shards)[0])):
        x = jax.checkpoint(layer)(jax.tree.map(lambda leaf, i=i: leaf[i], param_shards), x)
    return x


@wrong("flops")
def batch_among_zeros(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Every device puts its part of the batch among zeros, and computes as many examples as there
    are in all; let it compute its own part only."""
    return own_shard(scan_gathering(layer_fn, param_shards, among_zeros(x, axis), axis), axis)


@wrong("flops")
def layers_twice(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Every layer is computed twice, to choose one of two equal results; compute it once."""

    def layer(layer: Any, x: Array) -> Array:
        first = lax.axis_index(axis) == 0
        return jnp.where(first, layer_fn(layer, x), layer_fn(layer, x))

    return scan_gathering(layer, param_shards, x, axis)
