"""Exercise fsdp_apply: one layer whole at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function, Sizes
from jaxpar.parallel import fsdp


def _applied(case: Case, layer_fn: Callable, params: Any, x: jax.Array) -> list[Expected]:
    """Each device's part of the batch after all layers; the other axes hold copies."""
    for i in range(len(jax.tree.leaves(params)[0])):
        x = layer_fn(jax.tree.map(lambda leaf, i=i: leaf[i], params), x)
    axis, sizes = case.kwargs["axis"], case.sizes
    local = [n if name == axis else 1 for name, n in sizes.items()]
    blocks = x.reshape(*local, -1, *x.shape[1:])
    return [Expected(jnp.broadcast_to(blocks, (*sizes.values(), *blocks.shape[len(sizes) :])))]


def _other_shards(sizes: Sizes) -> int:
    return (sizes.n() - 1) * sizes.bytes("param_shards")


CONTRACT = Contract(
    kind="program",
    task="return x after all layers, each gathered when it is used, and again backward",
    reference=fsdp.fsdp_apply,
    oracle=_applied,
    cases=(
        Case(
            "fsdp=4",
            {
                "layer_fn": Function("jaxpar.contracts.layers:residual_mlp"),
                "param_shards": {
                    "up": ArraySpec((8, 32, 64), "l d_fsdp f"),
                    "down": ArraySpec((8, 64, 32), "l f_fsdp d"),
                },
                "x": ArraySpec((4 * 4, 32), "b_fsdp d"),
            },
            {"axis": "fsdp"},
        ),
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
    hidden=(
        Case(
            "pp=2,fsdp=2",
            {
                "layer_fn": Function("jaxpar.contracts.layers:residual_mlp"),
                "param_shards": {
                    "up": ArraySpec((9, 24, 40), "l d_fsdp f"),
                    "down": ArraySpec((9, 40, 24), "l f_fsdp d"),
                },
                "x": ArraySpec((2 * 3, 24), "b_fsdp d"),
            },
            {"axis": "fsdp"},
        ),
    ),
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
    hints=(
        "lax.scan over the stacked shards hands you one layer's at a time; gather them inside, so "
        "that the whole layer is gone when the next one comes.",
        "lax.all_gather(shards, axis, tiled=True) takes a pytree. Its derivative is the "
        "reduce-scatter: nothing is left to write for the gradients.",
        "What the gradient needs is kept for every layer, and gathered weights are among it. "
        "jax.checkpoint around the whole body, gather included, keeps shards and x only.",
    ),
    minimal="A device holds 1/n of a layer and needs all of it, twice if it may not keep it; the "
    "gradient of each row must come together on the device that holds it.",
    harder="Gather the next layer while this one is computed: carry it through the scan. "
    "What does it take in memory?",
)


LayerFn = Callable[[Any, Array], Array]


def _scan(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """Layer after layer; each layer's input is kept, and no more."""
    body = jax.checkpoint(lambda x, layer: (layer_fn(layer, x), None), prevent_cse=False)
    return lax.scan(body, x, params)[0]


@wrong("values")
def rows_interleaved(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """The rows of the devices are interleaved; lax.all_gather with tiled=True puts them one after
    the other."""

    def gather(shards: Array) -> Array:
        return lax.all_gather(shards, axis, axis=1).reshape(-1, *shards.shape[1:])

    return _scan(lambda s, x: layer_fn(jax.tree.map(gather, s), x), param_shards, x)


def _gathered(shards: Any, axis: str) -> Any:
    return lax.all_gather(shards, axis, tiled=True)


@wrong("values")
def first_layer_always(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Every turn of the loop uses the first layer; gather the one that lax.scan hands you."""
    first = _gathered(jax.tree.map(lambda leaf: leaf[0], param_shards), axis)
    return _scan(lambda _, x: layer_fn(first, x), param_shards, x)


@wrong("gradient")
def gradients_of_own_batch(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Each device returns the gradient of its own part of the batch; sum its rows over the devices,
    as the derivative of lax.all_gather does."""

    def gather(shards: Array) -> Array:
        n, size = lax.axis_size(axis), len(shards)
        others = lax.stop_gradient(lax.all_gather(shards, axis, tiled=True))
        here = (n * size, *shards.shape[1:])
        start = lax.axis_index(axis) * size
        mine = lax.dynamic_update_slice_in_dim(
            lax.pcast(jnp.zeros(here, shards.dtype), axis, to="varying"),
            shards - lax.stop_gradient(shards),
            start,
            0,
        )
        return others + mine

    return _scan(lambda s, x: layer_fn(jax.tree.map(gather, s), x), param_shards, x)


@wrong("gradient")
def gradients_averaged(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """The gradient is divided by the number of devices; layers know no mean, so return the sum, and
    let the loss divide."""

    def gather(shards: Array) -> Array:
        fixed = lax.stop_gradient(shards)
        return _gathered(fixed + (shards - fixed) / lax.axis_size(axis), axis)

    return _scan(lambda s, x: layer_fn(jax.tree.map(gather, s), x), param_shards, x)


@wrong("communication")
def gradients_all_reduced(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Whole gradients are summed on all devices, and each keeps its rows: twice the bytes of a
    reduce-scatter, which is the derivative of lax.all_gather."""

    @jax.custom_vjp
    def gather(shards: Any) -> Any:
        return _gathered(shards, axis)

    def backward(_: None, gradients: Any) -> tuple[Any]:
        def rows(gradient: Array) -> Array:
            size = len(gradient) // lax.axis_size(axis)
            total = lax.pcast(lax.psum(gradient, axis), axis, to="varying")
            return lax.dynamic_slice_in_dim(total, lax.axis_index(axis) * size, size)

        return (jax.tree.map(rows, gradients),)

    gather.defvjp(lambda shards: (gather(shards), None), backward)
    return _scan(lambda shards, x: layer_fn(gather(shards), x), param_shards, x)


@wrong("communication")
def gathers_activations(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """The batch is gathered, too, and every device computes all of it; a device needs the whole
    layer, but its own part of the batch only."""
    size = len(x)
    x = lax.all_gather(x, axis, tiled=True)
    x = _scan(lambda s, x: layer_fn(_gathered(s, axis), x), param_shards, x)
    return lax.dynamic_slice_in_dim(x, lax.axis_index(axis) * size, size)


@wrong("communication")
def gathers_by_sum(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Shards are put into zeros and summed: twice the bytes of lax.all_gather."""

    def gather(shards: Array) -> Array:
        n, size = lax.axis_size(axis), len(shards)
        whole = jnp.zeros((n * size, *shards.shape[1:]), shards.dtype)
        whole = lax.pcast(whole, axis, to="varying")
        start = lax.axis_index(axis) * size
        return lax.psum(lax.dynamic_update_slice_in_dim(whole, shards, start, 0), axis)

    return _scan(lambda s, x: layer_fn(jax.tree.map(gather, s), x), param_shards, x)


@wrong("memory")
def gathers_all_layers(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """All layers are gathered before the loop and are whole at once; gather one layer inside the
    loop."""
    return _scan(layer_fn, lax.all_gather(param_shards, axis, axis=1, tiled=True), x)


@wrong("memory")
def keeps_gathered(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """Every gathered layer is kept for the backward pass; wrap gather and layer together in
    jax.checkpoint, inside the scan."""

    def body(x: Array, shards: Any) -> tuple[Array, None]:
        return layer_fn(_gathered(shards, axis), x), None

    return lax.scan(body, x, param_shards)[0]


@wrong("memory")
def unrolls_layers(layer_fn: LayerFn, param_shards: Any, x: Array, *, axis: str) -> Array:
    """A Python loop puts all layers into one program, and the compiler gathers many of them early;
    use lax.scan."""

    def layer(shards: Any, x: Array) -> Array:
        return layer_fn(_gathered(shards, axis), x)

    for i in range(len(jax.tree.leaves(param_shards)[0])):
        x = jax.checkpoint(layer)(jax.tree.map(lambda leaf, i=i: leaf[i], param_shards), x)
    return x
