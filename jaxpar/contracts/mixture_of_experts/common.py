"""What the exercises of the lesson on mixture of experts have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpar.axes import parse_mesh
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes
from jaxpar.contracts.draws import all_axes
from jaxpar.mesh import entry_axes

EVERY_KIND = ("all_reduce", "all_to_all", "permute")
"""An all-reduce may be a reduce-scatter and an all-gather, or one of the two."""


def choices(drawn: Array, count: int) -> Array:
    """K different experts for each token, some of them more often than others.

    Args:
        drawn: any integers [t, k].
        count: how many experts are chosen, the first ones; low numbers are first choices more
            often.
    """
    first = jnp.minimum(drawn[:, 0] % count, drawn[:, 0] // 1024 % count)
    most = (count - 1) // max(1, drawn.shape[1] - 1)
    steps = jnp.where(jnp.arange(drawn.shape[1]) > 0, 1 + drawn % max(1, most), 0)
    return ((first[:, None] + jnp.cumsum(steps, axis=1)) % count).astype(jnp.int32)


def drawn_choices(mesh: str, tokens: int, top_k: int, count: int) -> Made:
    """The argument `experts`: for each token of a device `top_k` of the first `count` experts."""
    shape = math.prod(parse_mesh(mesh).values()) * tokens, top_k
    drawn = ArraySpec(shape, f"t_{all_axes(mesh)} k", "int32", "large")
    return Made(Function(f"{__name__}:choices"), (drawn, count))


def widened(x: Array) -> Array:
    """Numbers of few bits in float32, as weights that `route` returns for tokens in bfloat16."""
    return x.astype(jnp.float32)


def moe_args(
    mesh: str,
    axis: str,
    *,
    tokens: int,
    width: int,
    hidden: int,
    experts: int,
    top_k: int,
    chosen: int,
    dtype: str = "float32",
) -> dict[str, Any]:
    """The arguments of a layer of experts; what other axes split has experts of its own.

    Were these equal over some axes, an answer's gradient could be summed over them at a place of
    its choice. Weights are always float32, as those of `route` are; where they are made of others,
    their gradient is judged as precisely as the others' dtype allows.

    Args:
        mesh: the mesh.
        axis: the axis over whose devices the experts are split.
        tokens: tokens of a device.
        width: numbers of a token.
        hidden: the hidden size of an expert.
        experts: experts of all devices along `axis`.
        top_k: experts that a token goes to.
        chosen: how many experts are chosen at all.
        dtype: of all floats but the weights.
    """
    sizes, at = parse_mesh(mesh), all_axes(mesh)
    devices = math.prod(sizes.values())
    own = devices * (experts // sizes[axis])
    weights = ArraySpec((devices * tokens, top_k), f"t_{at} k", dtype, "positive")
    wide = weights if dtype == "float32" else Made(Function(f"{__name__}:widened"), (weights,))
    return {
        "x": ArraySpec((devices * tokens, width), f"t_{at} d", dtype),
        "weights": wide,
        "experts": drawn_choices(mesh, tokens, top_k, chosen),
        "w_gate": ArraySpec((own, width, hidden), f"e_{at} d f", dtype),
        "w_up": ArraySpec((own, width, hidden), f"e_{at} d f", dtype),
        "w_down": ArraySpec((own, hidden, width), f"e_{at} f d", dtype),
    }


def axes_of_call(case: Case) -> tuple[str, ...]:
    """The axes that the argument `axis` names."""
    return entry_axes(case.kwargs["axis"])


def devices_of(sizes: Sizes) -> int:
    """How many devices there are along the axes that the argument `axis` names."""
    return math.prod(sizes.case.sizes[axis] for axis in axes_of_call(sizes.case))


def in_groups(case: Case, axes: Sequence[str], x: Array) -> Array:
    """What the devices of each group along `axes` hold of x: [groups, devices, *local shape].

    All axes of the mesh split dim 0 of x, in their order.
    """
    _, places = _groups(case, axes)
    blocks = x.reshape(*case.sizes.values(), -1, *x.shape[1:])
    moved = blocks.transpose(*places, *range(len(places), blocks.ndim))
    devices = math.prod(case.sizes[axis] for axis in axes)
    return moved.reshape(-1, devices, *blocks.shape[len(places) :])


def on_devices(case: Case, axes: Sequence[str], y: Array) -> Array:
    """Takes [groups, devices, *shape] to [*mesh sizes, *shape]; the inverse of `in_groups`."""
    shape, places = _groups(case, axes)
    blocks = y.reshape(*shape, *y.shape[2:])
    return blocks.transpose(*np.argsort(places), *range(len(places), blocks.ndim))


def _groups(case: Case, axes: Sequence[str]) -> tuple[list[int], list[int]]:
    """The sizes of the mesh with `axes` last, and the places of these axes in the mesh."""
    names = [*(name for name in case.sizes if name not in axes), *axes]
    return [case.sizes[name] for name in names], [[*case.sizes].index(name) for name in names]


def every_expert(x: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
    """What each expert makes of each token: [e, t, d]."""
    gate, up = (jnp.einsum("td,edf->etf", x, w) for w in (w_gate, w_up))
    return jnp.einsum("etf,efd->etd", jax.nn.silu(gate) * up, w_down)


def weighed(y: Array, weights: Array, experts: Array) -> Array:
    """What the experts of each token make of it, [e, t, d], added up by weight."""
    chosen = y[experts, jnp.arange(len(experts))[:, None]]
    return (chosen * weights[..., None]).sum(axis=1)


def load(experts: Array, count: int) -> Array:
    """How many choices fall on each of `count` experts."""
    return jnp.zeros_like(experts, shape=(count,)).at[experts.reshape(-1)].add(1)
