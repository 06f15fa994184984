"""Layers of matrices in 8 bits, each of which is floats only while its layer is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import (
    Communication,
    Contract,
    Expected,
    FlopsLimit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.case import ArraySpec, Case, Function
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.contracts.smaller_models.common import own_rows
from jaxpar.contracts.steps import gathered, own_shard
from jaxpar.mesh import varying_axes
from jaxpar.parallel import quantized

LayerFn = Callable[[Any, Array], Array]


def coded_mlp(params: dict[str, Array], x: Array) -> Array:
    """Two matrices of about 60 with tanh between, added to x [b, d] in small steps."""
    return x + jnp.tanh(x @ params["up"] / 1024) @ params["down"] / 8192


def coded_wave(params: tuple[Array], x: Array) -> Array:
    """One square matrix of about 60 and a sine, added to x [b, d]."""
    (matrix,) = params
    return x + jnp.sin(x @ matrix / 1024) / 4


def nested_wave(params: list[dict[str, Array]], x: Array) -> Array:
    """Two matrices of about 60, nested, for x [b, t, d]."""
    gate, value = params[0]["gate"], params[1]["value"]
    return x + jnp.sin(x @ gate / 2048) * jnp.cos(x @ value / 2048) / 4


def _layered(case: Case, layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> list[Expected]:
    params = jax.tree.map(lambda code, scale: code * scale[:, None], codes, scales)
    y = lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]
    return [own_rows(case, y)]


def _matrix(layers: int, rows: int, cols: int) -> tuple[ArraySpec, ArraySpec]:
    """Codes, and the scales of columns."""
    return (
        ArraySpec((layers, rows, cols), "l d f", "int8", "around"),
        ArraySpec((layers, cols), "l f", draw="positive"),
    )


def _case(mesh: str, layer: str, codes_and_scales: Any, x: ArraySpec) -> Case:
    """A case of the layer of this name; its matrices are pairs of codes and scales."""

    def pick_one(tree: Any, place: int) -> Any:
        if isinstance(tree, dict):
            return {key: pick_one(leaf, place) for key, leaf in tree.items()}
        if isinstance(tree, list):
            return [pick_one(leaf, place) for leaf in tree]
        return tree[place]

    args = {
        "layer_fn": Function(f"{__name__}:{layer}"),
        "codes": pick_one(codes_and_scales, 0),
        "scales": pick_one(codes_and_scales, 1),
        "x": x,
    }
    return Case(mesh, args)


def _mlp_case(axis: str, n: int, layers: int, b: int, d: int, f: int) -> Case:
    matrices = {"up": _matrix(layers, d, f), "down": _matrix(layers, f, d)}
    return _case(f"{axis}={n}", "coded_mlp", matrices, ArraySpec((n * b, d), f"b_{axis} d"))


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp",))
    layers, t, d = (pick(rng, sizes) for sizes in (range(20, 25), (3, 5), range(40, 48)))
    nested = [{"gate": _matrix(layers, d, d)}, {"value": _matrix(layers, d, d)}]
    wave = [_matrix(5, d + 5, d + 5)]
    return (
        _case(f"{axis}=3", "nested_wave", nested, ArraySpec((9, t, d), f"b_{axis} t d")),
        _case(f"{other}=2", "coded_wave", wave, ArraySpec((10, d + 5), f"b_{other} d", "bfloat16")),
    )


CONTRACT = Contract(
    kind="program",
    task="call layer after layer, and make floats of a layer's matrices only while it is computed",
    reference=quantized.quantized_layers,
    oracle=_layered,
    cases=(
        _mlp_case("dp", 2, layers=8, b=4, d=128, f=256),
        _mlp_case("dp", 4, layers=16, b=2, d=64, f=96),
    ),
    draw=_drawn,
    gradient=("x",),
    sharding=True,
    communication=Communication("nothing is sent", forward=((),)),
    memory=MemoryLimit(
        "the inputs of all layers, and the floats of one: at most 1.5 times the library's bytes of "
        "intermediate results, with the gradient too",
        programs=("forward", "gradient"),
    ),
    flops=FlopsLimit(
        "with the gradient, each layer is computed forward twice at most",
        multiple=1.1,
        programs=("forward", "gradient"),
    ),
    hints=(
        "lax.scan hands you the codes and the scales of one layer at a time, as a pair of pytrees: "
        "lax.scan(step, x, (codes, scales)). Where must they become floats?",
        "Without help, the backward pass keeps what a layer's products used: floats of all layers. "
        "jax.checkpoint keeps the arguments of a function, and calls it again.",
        "Put jax.checkpoint around the function that makes the floats *and* calls layer_fn: then "
        "its arguments are x and the codes. A matrix is code.astype(float32) * scale[None], then "
        ".astype(x.dtype).",
    ),
    minimal="A layer's products need its floats, forward and backward. No other layer's are needed "
    "at that time.",
    harder="The floats of a layer are made twice. What would it cost to keep those of the last "
    "layer, which the backward pass needs first?",
)


def floats(codes: Any, scales: Any, x: Array) -> Any:
    """The matrices of one layer."""
    return jax.tree.map(
        lambda code, scale: (code.astype(scale.dtype) * scale[None]).astype(x.dtype), codes, scales
    )


def scanned(
    layer_fn: LayerFn, codes: Any, scales: Any, x: Array, floats: Callable[..., Any] = floats
) -> Array:
    """Layer after layer, as it is right, with floats made in another way."""

    def step(x: Array, layer: tuple[Any, Any]) -> tuple[Array, None]:
        return layer_fn(floats(*layer, x), x), None

    return lax.scan(jax.checkpoint(step, prevent_cse=False), x, (codes, scales))[0]


@wrong("values")
def codes_not_scaled(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """Layers get the codes as they are; multiply column k of a matrix by scale k."""
    return scanned(layer_fn, codes, jax.tree.map(jnp.ones_like, scales), x)


@wrong("values")
def scales_of_the_first_layer(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """All layers are scaled by the first layer's scales; let lax.scan hand you those of each layer,
    beside its codes."""
    first = jax.tree.map(lambda scale: jnp.broadcast_to(scale[:1], scale.shape), scales)
    return scanned(layer_fn, codes, first, x)


@wrong("values")
def scales_of_matrix_rows(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """Scale k is multiplied with row k of a matrix; it belongs to column k: scale[None], not
    scale[:, None]."""

    def by_rows(codes: Any, scales: Any, x: Array) -> Any:
        return jax.tree.map(
            lambda code, scale: (code * jnp.resize(scale, (len(code),))[:, None]).astype(x.dtype),
            codes,
            scales,
        )

    return scanned(layer_fn, codes, scales, x, by_rows)


@wrong("values")
def divided_by_scales(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """Codes are divided by their scales; they were made by dividing, so multiply."""
    return scanned(layer_fn, codes, jax.tree.map(lambda scale: 1 / scale, scales), x)


@wrong("values")
def last_layer_first(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """The layers are called from the last to the first; call layer 0 first."""
    codes, scales = jax.tree.map(lambda leaf: leaf[::-1], (codes, scales))
    return scanned(layer_fn, codes, scales, x)


@wrong("values")
def last_layer_forgotten(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """The last layer is left out."""
    codes, scales = jax.tree.map(lambda leaf: leaf[:-1], (codes, scales))
    return scanned(layer_fn, codes, scales, x)


@wrong("values")
def scales_rounded(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """The scales lose digits in 16 bits before they are multiplied; multiply in float32, and
    convert the matrix."""
    scales = jax.tree.map(lambda scale: scale.astype(jnp.bfloat16).astype(scale.dtype), scales)
    return scanned(layer_fn, codes, scales, x)


@wrong("gradient")
def gradient_stops_at_each_layer(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """The gradient with respect to x ends at lax.stop_gradient; codes have no gradient, but x goes
    through all layers."""

    def layer(params: Any, x: Array) -> Array:
        return x + lax.stop_gradient(layer_fn(params, x) - x)

    return scanned(layer, codes, scales, x)


@wrong("memory")
def all_made_floats_first(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """The floats of all layers are held at once: they are made before the loop, or kept as the
    arguments of a jax.checkpoint around layer_fn alone. Make those of one layer inside the loop,
    and inside of the checkpoint."""
    params = jax.vmap(lambda codes, scales: floats(codes, scales, x))(codes, scales)

    def step(x: Array, layer: Any) -> tuple[Array, None]:
        return layer_fn(layer, x), None

    return lax.scan(jax.checkpoint(step, prevent_cse=False), x, params)[0]


@wrong("memory")
def floats_kept(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """The floats of all layers are kept for the backward pass; put jax.checkpoint around the
    function that makes them and calls the layer."""

    def step(x: Array, layer: tuple[Any, Any]) -> tuple[Array, None]:
        return layer_fn(floats(*layer, x), x), None

    return lax.scan(step, x, (codes, scales))[0]


@wrong("memory")
def one_checkpoint_for_all(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """One checkpoint is around the whole loop, so the backward pass goes forward again and keeps
    the floats of all layers then; checkpoint the function of each step."""
    return jax.checkpoint(floats_kept, static_argnums=0)(layer_fn, codes, scales, x)


@wrong("communication")
def batch_gathered(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """The examples of all devices are gathered, and every device computes all of them; a device
    needs its own only."""
    (axis,) = varying_axes(x)
    return own_shard(scanned(layer_fn, codes, scales, gathered(x, axis)), axis)


@wrong("flops")
def layers_computed_twice(layer_fn: LayerFn, codes: Any, scales: Any, x: Array) -> Array:
    """Every layer is computed twice, to choose one of two equal results; compute it once."""

    def layer(params: Any, x: Array) -> Array:
        return jnp.where(x[:1] > 0, layer_fn(params, x), layer_fn(params, x))

    return scanned(layer, codes, scales, x)
