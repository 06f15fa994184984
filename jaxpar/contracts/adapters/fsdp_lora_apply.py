"""Fully sharded layers with a frozen base: gathered twice, and never reduced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.blocks import work_is_split
from jaxpar.contracts.case import ArraySpec, Case, Function, Sizes, array_leaves
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import (
    among_zeros,
    as_it_is,
    enter,
    gathered,
    gathered_by_sum,
    own_shard,
    with_gradient_divided,
    with_gradient_of_device_zero,
)
from jaxpar.parallel import adapters as library

LayerFn = Callable[[Any, Any, Array], Array]
Gather = Callable[[Any, str], Any]


def _applied(case: Case, layer_fn: LayerFn, base: Any, adapters: Any, x: Array) -> list[Expected]:
    """Each device's part of the batch after all layers; the other axes hold copies."""
    base = lax.stop_gradient(base)
    for i in range(len(jax.tree.leaves(adapters)[0])):
        x = layer_fn(_layer(base, i), _layer(adapters, i), x)
    axis, sizes = case.kwargs["axis"], case.sizes
    local = [n if name == axis else 1 for name, n in sizes.items()]
    blocks = x.reshape(*local, -1, *x.shape[1:])
    return [Expected(jnp.broadcast_to(blocks, (*sizes.values(), *blocks.shape[len(sizes) :])))]


def _layer(stacked: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], stacked)


def _case(mesh: str, axis: str, layers: int, d: int, f: int, r: int, examples: int) -> Case:
    """Two matrices in a layer, of which n divides the rows, and one adapter for both."""
    args = {
        "layer_fn": Function("jaxpar.contracts.adapters.common:tied_layer"),
        "base_shards": {
            "w": ArraySpec((layers, d, f), f"l d_{axis} f"),
            "down": ArraySpec((layers, f, d), f"l f_{axis} d"),
        },
        "adapters": {
            "a": ArraySpec((layers, d, r), "l d r"),
            "b": ArraySpec((layers, r, f), "l r f"),
        },
        "x": ArraySpec((examples * parse_mesh(mesh)[axis], d), f"b_{axis} d"),
    }
    return Case(mesh, args, {"axis": axis})


def _coded_case(
    mesh: str, axis: str, layers: int, d: int, block: int, r: int, x: tuple[int, ...],
    dtype: str = "float32",
) -> Case:  # fmt: skip
    """One matrix of NF4 codes in a layer; x [.., d] has these leading dims on one device."""
    rows, *others = x
    names = " ".join([f"b_{axis}", *"tuv"[: len(others)], "d"])
    args = {
        "layer_fn": Function("jaxpar.contracts.adapters.common:coded_layer"),
        "base_shards": (
            ArraySpec((layers, d, d // 2), f"l d_{axis} f", "uint8", "large"),
            ArraySpec((layers, d, d // block), f"l d_{axis} f", draw="positive"),
        ),
        "adapters": (
            ArraySpec((layers, d, r), "l d r", dtype),
            ArraySpec((layers, r, d), "l r d", dtype),
        ),
        "x": ArraySpec((rows * parse_mesh(mesh)[axis], *others, d), names, dtype),
    }
    return Case(mesh, args, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Codes in more layers than in the stub, for bfloat16 and x of three dims; one device."""
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, m = pick(rng, ((5, 2), (3, 4), (6, 2)))
    d = 60 * pick(rng, (1, 2))
    mesh = mesh_of(rng, **{axis: n, other: m})
    layers = pick(rng, range(11, 15))
    return (
        _coded_case(mesh, axis, layers, d, 20, 3, (3, 2), "bfloat16"),
        _case(f"{axis}=1,{other}=2", axis, 1, 21, pick(rng, (25, 27)), 2, 40),
    )


def _other_shards(sizes: Sizes) -> int:
    return (sizes.n() - 1) * sizes.bytes("base_shards")


def _adapters_summed(sizes: Sizes) -> float:
    """An all-reduce of the gradients of all adapters, each leaf padded to n chunks."""
    n = sizes.n()
    leaves = list(array_leaves(sizes.case.args["adapters"]))
    items = [2 if leaf.dtype == "bfloat16" else 4 for leaf in leaves]
    chunks = (-(-math.prod(leaf.shape) // n) for leaf in leaves)
    return 2 * (n - 1) * sum(size * item for size, item in zip(chunks, items, strict=True))


CONTRACT = Contract(
    kind="program",
    task="return x after all layers; gather each layer's frozen base when it is used, and backward",
    reference=library.fsdp_lora_apply,
    oracle=_applied,
    cases=(
        _case("fsdp=8", "fsdp", 4, 32, 64, 4, 4),
        _coded_case("dp=4,tp=2", "dp", 8, 64, 32, 2, (5,)),
    ),
    draw=_drawn,
    gradient=("base_shards", "adapters", "x"),
    communication=Communication(
        "each layer's base gathered once forward and once backward, as it is stored; one "
        "all-reduce of the adapters' gradients backward, and nothing for the base's",
        forward=((Limit(("all_gather", "permute"), "axis", _other_shards),),),
        backward=(
            (
                Limit(("all_gather", "permute"), "axis", _other_shards),
                Limit(("all_reduce",), "axis", _adapters_summed),
            ),
        ),
    ),
    memory=MemoryLimit(
        "one layer's base and every layer's input: at most twice the library's bytes of "
        "intermediate results, forward and backward",
        multiple=2,
        programs=("forward", "gradient"),
    ),
    flops=work_is_split(),
    hints=(
        "It is FSDP's loop over layers, with a second argument that is whole on every device. What "
        "does the gradient of the base cost, and who needs it?",
        "lax.stop_gradient(base_shards) before the loop leaves no gradient to reduce. The adapters "
        "are equal on all devices: type them as varying before the loop, too, so that their "
        "gradients are summed once, and not at each use.",
        "lax.scan over (base_shards, adapters), its body in jax.checkpoint(prevent_cse=False): "
        "lax.all_gather(shards, axis, tiled=True) takes a whole pytree, codes as well.",
    ),
    minimal="A device lacks what the others hold of a layer, twice if it may not keep it. Of the "
    "gradients only those of adapters are used: two thirds of what FSDP sends are left.",
    harder="Shard the adapters as well. From which rank on is it worth it?",
)


def _scanned(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, axis: str,
    *,
    gather: Gather = gathered,
    frozen: Callable[[Any], Any] = lax.stop_gradient,
    enter: Gather = enter,
    again: Callable[[Callable], Callable] = lambda f: jax.checkpoint(f, prevent_cse=False),
) -> Array:  # fmt: skip
    """A right answer, of which mistakes change a step."""

    def body(x: Array, layer: tuple[Any, Any]) -> tuple[Array, None]:
        shards, adapter = layer
        return layer_fn(gather(shards, axis), adapter, x), None

    return lax.scan(again(body), x, (frozen(base_shards), enter(adapters, axis)))[0]


@wrong("values")
def base_interleaved(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """The rows of the devices are interleaved; lax.all_gather with tiled=True puts the parts one
    after the other."""

    def gather(shards: Any, axis: str) -> Any:
        def of(leaf: Array) -> Array:
            return lax.all_gather(leaf, axis, axis=1).reshape(-1, *leaf.shape[1:])

        return jax.tree.map(of, shards)

    return _scanned(layer_fn, base_shards, adapters, x, axis, gather=gather)


@wrong("values")
def first_adapter_always(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """Every layer has the adapter of the first one; let lax.scan hand you each layer's own."""
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), adapters)
    return _scanned(layer_fn, base_shards, same, x, axis)


@wrong("values")
def first_base_always(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """Every layer has the base of the first one; let lax.scan hand you each layer's own."""
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), base_shards)
    return _scanned(layer_fn, same, adapters, x, axis)


@wrong("values")
def layers_backwards(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """The layers are applied from the last to the first; begin with the first."""
    base, low = jax.tree.map(lambda leaf: leaf[::-1], (base_shards, adapters))
    return _scanned(layer_fn, base, low, x, axis)


@wrong("gradient")
def base_trained(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """The base has a gradient, which is reduce-scattered as in FSDP, and which nobody uses; freeze
    it with lax.stop_gradient before it is gathered."""
    return _scanned(layer_fn, base_shards, adapters, x, axis, frozen=lambda base: base)


@wrong("gradient")
def adapters_frozen(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """The adapters have no gradient; the base is frozen, and they are trained."""
    return _scanned(layer_fn, base_shards, lax.stop_gradient(adapters), x, axis)


@wrong("gradient")
def gradient_of_adapters_averaged(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """The gradient of the adapters is divided by the number of devices; a layer does not know
    whether the loss is a mean, so return the sum."""

    def divided(adapters: Any, axis: str) -> Any:
        return jax.tree.map(lambda leaf: with_gradient_divided(enter(leaf, axis), axis), adapters)

    return _scanned(layer_fn, base_shards, adapters, x, axis, enter=divided)


@wrong("gradient")
def gradient_of_adapters_on_device_zero(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """The gradient of the adapters is that of device 0's batch alone; sum it over the devices."""

    def of_zero(adapters: Any, axis: str) -> Any:
        return jax.tree.map(
            lambda leaf: with_gradient_of_device_zero(enter(leaf, axis), axis), adapters
        )

    return _scanned(layer_fn, base_shards, adapters, x, axis, enter=of_zero)


@wrong("communication")
def cast_left_to_jax(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """JAX makes an adapter varying at each of its uses, and sums its gradient at each of them, in
    every layer; type all adapters as varying once, before the loop."""
    return _scanned(layer_fn, base_shards, adapters, x, axis, enter=as_it_is)


@wrong("communication")
def reduced_and_dropped(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """The gradient of the base is reduce-scattered, and then multiplied by zero; freeze the base,
    so that nothing is sent for it."""

    @jax.custom_vjp
    def forgotten(shards: Any) -> Any:
        return shards

    def without(_: Any, gradient: Any) -> tuple[Any]:
        return (jax.tree.map(lambda g: 0 * g if _is_float(g) else g, gradient),)

    forgotten.defvjp(lambda shards: (shards, None), without)
    return _scanned(layer_fn, base_shards, adapters, x, axis, frozen=forgotten)


def _is_float(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


@wrong("communication")
def gathered_as_float32(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """The base is sent as float32, and codes of it take four times as many bytes; gather each leaf
    as it is stored."""

    def gather(shards: Any, axis: str) -> Any:
        return jax.tree.map(
            lambda leaf: gathered(leaf.astype(jnp.float32), axis).astype(leaf.dtype), shards
        )

    return _scanned(layer_fn, base_shards, adapters, x, axis, gather=gather)


@wrong("communication")
def base_gathered_by_sum(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """Shards are padded with zeros and summed, which sends twice the bytes of lax.all_gather."""

    def gather(shards: Any, axis: str) -> Any:
        return jax.tree.map(lambda leaf: gathered_by_sum(leaf, axis), shards)

    return _scanned(layer_fn, base_shards, adapters, x, axis, gather=gather)


@wrong("communication")
def batch_gathered(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """The batch is gathered, too, and every device computes all of it; a device needs the whole
    layer, but its own part of the batch only."""
    whole = _scanned(layer_fn, base_shards, adapters, gathered(x, axis), axis)
    return own_shard(whole, axis)


@wrong("memory")
def all_layers_gathered(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """All layers are gathered before the loop, so all of them are held whole at once; gather one
    layer at a time, inside the loop."""
    whole = gathered(lax.stop_gradient(base_shards), axis, 1)
    return _scanned(layer_fn, whole, adapters, x, axis, gather=as_it_is)


@wrong("memory")
def gathered_layers_kept(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """Every gathered layer is kept for the backward pass; wrap gather and layer together in
    jax.checkpoint, inside the scan."""
    return _scanned(layer_fn, base_shards, adapters, x, axis, again=lambda f: f)


@wrong("flops")
def layers_twice(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """Every layer is computed twice, to choose one of two equal results; compute it once."""

    def layer(base: Any, adapter: Any, x: Array) -> Array:
        first = lax.axis_index(axis) == 0
        return jnp.where(first, layer_fn(base, adapter, x), layer_fn(base, adapter, x))

    return _scanned(layer, base_shards, adapters, x, axis)


@wrong("memory")
def examples_among_zeros(
    layer_fn: LayerFn, base_shards: Any, adapters: Any, x: Array, *, axis: str
) -> Array:
    """Every device puts its part of the batch among zeros, and holds as many examples as there are
    in all; let it compute its own part only."""
    whole = _scanned(layer_fn, base_shards, adapters, among_zeros(x, axis), axis)
    return own_shard(whole, axis)
