"""What the exercises of the lesson on activation checkpointing have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Expected
from jaxpar.contracts.case import ArraySpec, Case, Function
from jaxpar.contracts.layers import gentle_mlp
from jaxpar.mesh import varying_axes

LayerFn = Callable[[Any, Array], Array]


def layer_after_layer(case: Case, layer_fn: Callable, params: Any, x: Array) -> list[Expected]:
    """The oracle: each device's own layers on its own x, one after the other."""
    (n,) = case.sizes.values()
    own = jax.tree.map(lambda leaf: jnp.stack(jnp.split(leaf, n, axis=1)), params)

    def on_one_device(params: Any, x: Array) -> Array:
        return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]

    return [Expected(jax.vmap(on_one_device)(own, x.reshape(n, -1, *x.shape[1:])))]


# Each device has its own layers: equal ones would have their gradients summed in the loop.


def mlp_case(layers: int, b: int, d: int, **kwargs: int) -> Case:
    """Two matrices a layer on two devices, with x [b, d] on each."""
    params = {
        "up": ArraySpec((layers, 2 * d, 16 * d), "l d_dp f"),
        "down": ArraySpec((layers, 2 * 16 * d, d), "l f_dp d"),
    }
    layer_fn = Function("jaxpar.contracts.layers:gentle_mlp")
    args = {"layer_fn": layer_fn, "params": params, "x": ArraySpec((2 * b, d), "b_dp d")}
    return Case("dp=2", args, kwargs)


def wave_case(layers: int, b: int, d: int, **kwargs: int) -> Case:
    """A matrix and a bias a layer on three devices, with x [b, d] on each."""
    params = (
        ArraySpec((layers, 3 * d, d), "l d_fsdp f"),
        ArraySpec((layers, 3 * d), "l f_fsdp"),
    )
    layer_fn = Function("jaxpar.contracts.layers:gentle_wave")
    args = {"layer_fn": layer_fn, "params": params, "x": ArraySpec((3 * b, d), "b_fsdp d")}
    return Case("fsdp=3", args, kwargs)


def nested_mlp(params: dict[str, list], x: Array) -> Array:
    """As `gentle_mlp`, of parameters that are nested."""
    up, inner = params["block"]
    return gentle_mlp({"up": up, "down": inner["down"]}, x)


def nested_case(axis: str, layers: int, b: int, t: int, d: int, **kwargs: int) -> Case:
    """Nested parameters on four devices, with x [b, t, d] on each."""
    params = {
        "block": [
            ArraySpec((layers, 4 * d, 16 * d), f"l d_{axis} f"),
            {"down": ArraySpec((layers, 4 * 16 * d, d), f"l f_{axis} d")},
        ]
    }
    layer_fn = Function(f"{__name__}:nested_mlp")
    x = ArraySpec((4 * b, t, d), f"b_{axis} t d")
    return Case(f"{axis}=4", {"layer_fn": layer_fn, "params": params, "x": x}, kwargs)


def scaled_sine(params: list[Array], x: Array) -> Array:
    """Each element by itself, for x [d]."""
    (scale,) = params
    return x + jnp.sin(scale * x) / 8


def sines_case(axis: str, layers: int, dtype: str, **kwargs: int) -> Case:
    """So small that its bytes are free, and without a matrix product: only the values count."""
    params, x = (
        [ArraySpec((layers, 5 * 3), f"l d_{axis}", dtype)],
        ArraySpec((15,), f"d_{axis}", dtype),
    )
    args = {"layer_fn": Function(f"{__name__}:scaled_sine"), "params": params, "x": x}
    return Case(f"{axis}=5", args, kwargs)


def scan(layer_fn: LayerFn, params: Any, x: Array) -> Array:
    """Layer after layer."""
    return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]


def count_layers(params: Any) -> int:
    """The number of stacked layers."""
    return len(jax.tree.leaves(params)[0])


def own_of_all(leaf: Array) -> Array:
    """This device's own leaf, of all that are gathered: what no answer needs to send."""
    axes = tuple(sorted(varying_axes(leaf)))
    return lax.all_gather(leaf, axes)[lax.axis_index(axes)]
