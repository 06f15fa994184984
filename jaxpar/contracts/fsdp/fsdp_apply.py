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
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes, fill
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


def full_params(flat: Array, like: Any) -> Any:
    """One layer's parameters, out of the array in which they follow one another."""
    shapes, structure = jax.tree.flatten(like)
    leaves, start = [], 0
    for leaf in shapes:
        leaves.append(flat[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return structure.unflatten(leaves)


def _applied(case: Case, layer_fn: LayerFn, like: Any, flat: Array, x: Array) -> list[Expected]:
    """Each device's part of the batch after all layers; the other axes hold copies."""
    for layer in flat:
        x = layer_fn(full_params(layer, like), x)
    axis, sizes = case.kwargs["axis"], case.sizes
    local = [n if name == axis else 1 for name, n in sizes.items()]
    blocks = x.reshape(*local, -1, *x.shape[1:])
    return [Expected(jnp.broadcast_to(blocks, (*sizes.values(), *blocks.shape[len(sizes) :])))]


def _case(
    mesh: str,
    layer_fn: str,
    like: Made,
    layers: int,
    x: ArraySpec,
    axis: str,
    dtype: str = "float32",
) -> Case:
    n, size = Case(mesh, {}).sizes[axis], sum(s.size for s in jax.tree.leaves(fill(like, iter(()))))
    args = {
        "layer_fn": Function(f"jaxpar.contracts.layers:{layer_fn}"),
        "like": like,
        "flat_shards": ArraySpec((layers, -(-size // n) * n), f"l s_{axis}", dtype),
        "x": x,
    }
    return Case(mesh, args, {"axis": axis})


def _mlp_case(mesh: str, axis: str, layers: int, d: int, f: int, b: int) -> Case:
    x = ArraySpec((b, d), f"b_{axis} d")
    return _case(mesh, "residual_mlp", _shapes("mlp", d, f), layers, x, axis)


def _shapes(of: str, *sizes: Any) -> Made:
    return Made(Function(f"jaxpar.contracts.layers:{of}_shapes"), sizes)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """More layers than in the stub, of low precision, for x of three dims; one layer alone."""
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, m = pick(rng, ((5, 2), (2, 5), (6, 2)))
    layers, d = pick(rng, range(11, 15)), n * (60 // n) + 1
    x = ArraySpec((3 * n, 2, d), f"b_{axis} t d", "bfloat16")
    like = _shapes("square", d, "bfloat16")
    mesh = mesh_of(rng, **{axis: n, other: m})
    return (
        _case(mesh, "tanh_layer", like, layers, x, axis, "bfloat16"),
        _mlp_case(f"{axis}=1,{other}=2", axis, layers=1, d=21, f=pick(rng, (25, 27)), b=40),
    )


def _other_shards(sizes: Sizes) -> int:
    return (sizes.n() - 1) * sizes.bytes("flat_shards")


CONTRACT = Contract(
    kind="program",
    task="return x after all layers, each gathered when it is used, and again backward",
    reference=fsdp.fsdp_apply,
    oracle=_applied,
    cases=(
        _mlp_case("fsdp=4", "fsdp", layers=8, d=32, f=64, b=4 * 4),
        _case(
            "dp=3,tp=2",
            "scaled_projection",
            _shapes("square", 46, "float32"),
            7,
            ArraySpec((3 * 2, 46), "b_dp d"),
            "dp",
        ),
    ),
    draw=_drawn,
    gradient=("flat_shards", "x"),
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
        "lax.scan over flat_shards hands you those of one layer at a time; gather them inside the "
        "loop, so that the whole layer is freed before the next one is gathered.",
        "jax.tree.flatten(like) gives the shapes of the leaves in their order, and the structure "
        "whose unflatten takes the leaves. Each leaf is a slice of what you have gathered, "
        "reshaped; what is left at the end is padding.",
        "What the gradient needs is kept for every layer, and gathered weights are among it. "
        "jax.checkpoint around the whole body, gather included, keeps shards and x only. The "
        "derivative of lax.all_gather is the reduce-scatter.",
    ),
    minimal="A device holds 1/n of a layer and needs all of it, twice if it may not keep it; the "
    "parts of each parameter's gradient must be summed on the device that holds the parameter.",
    harder="Gather the next layer while this one is computed: carry it through the scan. "
    "What does it take in memory?",
)


def scan_layers(layer_fn: LayerFn, like: Any, flat: Array, x: Array) -> Array:
    """Applies layer after layer, and keeps no more than the input of each."""

    def body(x: Array, layer: Array) -> tuple[Array, None]:
        return layer_fn(full_params(layer, like), x), None

    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, flat)[0]


def scan_gathering(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, axis: str, gather: Step = gathered
) -> Array:
    """Applies layer after layer, and gathers each by `gather` when it is used."""

    def body(x: Array, shard: Array) -> tuple[Array, None]:
        return layer_fn(full_params(gather(shard, axis), like), x), None

    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, flat_shards)[0]


@wrong("values")
def elements_interleaved(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """The elements of the devices are interleaved; lax.all_gather with tiled=True puts the parts
    one after the other."""

    def gather(shard: Array, axis: str) -> Array:
        return lax.all_gather(shard, axis, axis=1).reshape(-1)

    return scan_gathering(layer_fn, like, flat_shards, x, axis, gather)


@wrong("values")
def leaves_in_the_order_of_the_dict(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """The leaves are cut in the order in which the dict was written; a pytree sorts the keys of a
    dict, and jax.tree.flatten gives the leaves in that order."""

    def layer(flat: Array, x: Array) -> Array:
        if not isinstance(like, dict):
            return layer_fn(full_params(flat, like), x)
        names, shapes = list(like), list(like.values())
        return layer_fn(dict(zip(names, full_params(flat, shapes), strict=True)), x)

    def body(x: Array, shard: Array) -> tuple[Array, None]:
        return layer(gathered(shard, axis), x), None

    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, flat_shards)[0]


@wrong("values")
def leaves_by_columns(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """The leaves are filled by columns; they are flattened by rows, as reshape fills them."""

    def transposed(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(leaf.shape[::-1], leaf.dtype)

    def turned(params: Any, x: Array) -> Array:
        return layer_fn(jax.tree.map(jnp.transpose, params), x)

    return scan_gathering(turned, jax.tree.map(transposed, like), flat_shards, x, axis)


@wrong("values")
def first_layer_always(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """Every turn of the loop uses the first layer; gather the one that lax.scan hands you."""
    first = gathered(flat_shards[0], axis)
    return scan_layers(layer_fn, like, jnp.broadcast_to(first, (len(flat_shards), *first.shape)), x)


@wrong("gradient")
def gradients_of_own_batch(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """Each device returns the gradient of its own part of the batch; sum its part of the gradient
    over the devices, as the derivative of lax.all_gather does."""
    return scan_gathering(layer_fn, like, flat_shards, x, axis, gathered_for_own_gradient)


@wrong("gradient")
def gradients_averaged(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """The gradient is divided by the number of devices; a layer does not know whether the loss is a
    mean, so return the sum, and let the loss divide."""

    def gather(shards: Array, axis: str) -> Array:
        return gathered(with_gradient_divided(shards, axis), axis)

    return scan_gathering(layer_fn, like, flat_shards, x, axis, gather)


@wrong("communication")
def gradients_all_reduced(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """Whole gradients are summed on all devices, and each keeps its part: twice the bytes of a
    reduce-scatter, which is the derivative of lax.all_gather."""
    return scan_gathering(layer_fn, like, flat_shards, x, axis, gathered_for_all_reduce)


@wrong("communication")
def gathers_activations(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """The batch is gathered, too, and every device computes all of it; a device needs the whole
    layer, but its own part of the batch only."""
    return own_shard(scan_gathering(layer_fn, like, flat_shards, gathered(x, axis), axis), axis)


@wrong("communication")
def gathers_by_sum(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """Shards are padded with zeros and summed, which sends twice the bytes of lax.all_gather."""
    return scan_gathering(layer_fn, like, flat_shards, x, axis, gathered_by_sum)


@wrong("memory")
def gathers_all_layers(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """All layers are gathered before the loop, so all of them are held whole at once; gather one
    layer at a time, inside the loop."""
    return scan_layers(layer_fn, like, gathered(flat_shards, axis, 1), x)


@wrong("memory")
def keeps_gathered(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """Every gathered layer is kept for the backward pass; wrap gather and layer together in
    jax.checkpoint, inside the scan."""

    def body(x: Array, shard: Array) -> tuple[Array, None]:
        return layer_fn(full_params(gathered(shard, axis), like), x), None

    return lax.scan(body, x, flat_shards)[0]


@wrong("memory")
def unrolls_layers(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """A Python loop puts all layers into one program, and the compiler gathers many of them early;
    use lax.scan."""

    def layer(shard: Array, x: Array) -> Array:
        return layer_fn(full_params(gathered(shard, axis), like), x)

    for shard in flat_shards:
        x = jax.checkpoint(layer)(shard, x)
    return x


@wrong("flops")
def batch_among_zeros(
    layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str
) -> Array:
    """Every device puts its part of the batch among zeros, and computes as many examples as there
    are in all; let it compute its own part only."""
    whole = scan_gathering(layer_fn, like, flat_shards, among_zeros(x, axis), axis)
    return own_shard(whole, axis)


@wrong("flops")
def layers_twice(layer_fn: LayerFn, like: Any, flat_shards: Array, x: Array, *, axis: str) -> Array:
    """Every layer is computed twice, to choose one of two equal results; compute it once."""

    def layer(layer: Any, x: Array) -> Array:
        first = lax.axis_index(axis) == 0
        return jnp.where(first, layer_fn(layer, x), layer_fn(layer, x))

    return scan_gathering(layer, like, flat_shards, x, axis)
