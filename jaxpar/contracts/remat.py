"""Contracts of lesson 08: activation checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar.contracts import remat_mistakes
from jaxpar.contracts.base import BadCall, Contract, Expected, FlopsLimit, MemoryLimit
from jaxpar.contracts.case import Array, Case, Function
from jaxpar.cost.activations import activation_bytes
from jaxpar.cost.layout import REMATS
from jaxpar.parallel.remat import remat_layers

Call = tuple[tuple, dict]

_MLP = Function("jaxpar.contracts.layers:gentle_mlp")
_WAVE = Function("jaxpar.contracts.layers:gentle_wave")
_MODELS = ((4, 2048, 6144, 64, 48), (1, 2048, 12288, 96, 96))  # 22B and 175B of the paper


def _layer_after_layer(case: Case, layer_fn: Callable, params: Any, x: jax.Array) -> list[Expected]:
    (n,) = case.sizes.values()
    own = jax.tree.map(lambda leaf: jnp.stack(jnp.split(leaf, n, axis=1)), params)

    def on_one(params: Any, x: jax.Array) -> jax.Array:
        return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]

    return [Expected(jax.vmap(on_one)(own, x.reshape(n, -1, x.shape[1])))]


# Each device has its own layers: equal ones would have their gradients summed in the loop.
def _mlp(layers: int, b: int, d: int, segments: int) -> Case:
    params = {
        "up": Array((layers, 2 * d, 16 * d), "l d_dp f"),
        "down": Array((layers, 2 * 16 * d, d), "l f_dp d"),
    }
    args = {"layer_fn": _MLP, "params": params, "x": Array((2 * b, d), "b_dp d")}
    return Case("dp=2", args, {"segments": segments})


def _wave(layers: int, b: int, d: int, segments: int, mesh: str = "fsdp=3") -> Case:
    axis, n = mesh.split("=")[0], int(mesh.split("=")[1])
    params = (Array((layers, n * d, d), f"l d_{axis} f"), Array((layers, n * d), f"l f_{axis}"))
    args = {"layer_fn": _WAVE, "params": params, "x": Array((n * b, d), f"b_{axis} d")}
    return Case(mesh, args, {"segments": segments})


REMAT_LAYERS = Contract(
    id="remat_layers",
    kind="program",
    task="call layer after layer, and keep only the inputs of `segments` segments for the gradient",
    reference=remat_layers,
    oracle=_layer_after_layer,
    cases=(
        _mlp(layers=512, b=128, d=4, segments=128),
        _wave(layers=192, b=48, d=8, segments=24),
    ),
    hidden=(_wave(layers=150, b=64, d=8, segments=25, mesh="tp=4"),),
    gradient=("params", "x"),
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
        BadCall(
            _wave(layers=10, b=4, d=8, segments=4),
            "segments does not divide the layers",
        ),
    ),
    mistakes=remat_mistakes.REMAT_LAYERS,
    hints=(
        "jax.checkpoint(f) keeps the arguments of f for the gradient, and calls f again in the "
        "backward pass. What must f be, that its arguments are the input of a segment?",
        "Reshape each leaf of params to [segments, l / segments, ...]: an outer lax.scan goes over "
        "the segments, an inner one over the layers of one.",
        "The outer loop's function is jax.checkpoint of the inner loop. Python loops would not do: "
        "on a CPU the compiler merges what is computed twice.",
    ),
    minimal="Whatever is not kept must come from what is: of every segment one x at least, and "
    "while its gradient is computed, what its own layers need.",
    harder="Checkpoint in three levels, with cube roots: what is kept then, and how often is each "
    "layer computed?",
)


def _calls(rng: np.random.Generator) -> list[Call]:
    """A small model, the paper's in every way, random ones, then a remat that there is not."""

    def call(model: tuple[int, ...], tp: int, sequence_parallel: bool, remat: str) -> Call:
        return model, {"tp": tp, "sequence_parallel": sequence_parallel, "remat": remat}

    ways = [(split, remat) for remat in REMATS for split in (False, True)]
    calls = [call((1, 4, 8, 2, 3), 2, split, remat) for split, remat in ways[:3]]
    calls += [call(model, 8, *way) for model in _MODELS for way in ways]
    for way in [*ways, *ways]:
        tp, heads, b, layers = (int(n) for n in rng.integers(2, 6, 4))
        s, h = tp * int(rng.integers(3, 50)), tp * heads * 8 * int(rng.integers(1, 9))
        calls.append(call((b, s, h, tp * heads, layers), tp, *way))
    odd = tuple(int(n) for n in rng.integers(2, 9, 5))
    return [*calls, call(odd, 1, False, "none"), call(odd, 1, False, "half")]


ACTIVATION_BYTES = Contract(
    id="activation_bytes",
    kind="value",
    task="return the bytes of activations that one device keeps, by table 2 of the paper",
    reference=activation_bytes,
    oracle=activation_bytes,
    values=_calls,
    mistakes=remat_mistakes.ACTIVATION_BYTES,
    hints=(
        "Without tensor parallelism and remat a layer keeps s*b*h*(34 + 5*heads*s/h) bytes; of the "
        "34, attention has 11, the MLP 19 and the norms 4.",
        "10 of the 34 are outside: both norms' inputs, both blocks' inputs, the masks of both "
        "dropouts. tp divides the 24, and heads; it divides the 10 only if sequence_parallel.",
        "selective: leave the 5*heads*s*s*b out. full: 2*s*b*h for each layer, and nothing else.",
    ),
    minimal="It is arithmetic on sizes: what is kept is known before anything runs.",
    harder="Add the stages of a pipeline: what does the first of p stages keep under 1F1B?",
)

CONTRACTS = (ACTIVATION_BYTES, REMAT_LAYERS)
