"""Exercise streaming_round (lesson 06): a fragment of the model at a time.

Your task: synchronise the fragment that is due after `step`, if one is, and leave all others
alone.

Save it while `jaxpar` runs, or check it with `jaxpar check streaming_round`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   communication 3  one all-reduce's bytes of the leaves that are due, and nothing where none is
#   errors        1  ValueError where 3 fragments in 2 steps; leaf 1 in no fragment; leaf 1 in two
#                    fragments; leaf 3 of leaves 0 to 2
#
# Tried with, on each device:
#   mesh dp=8
#     params        {a: float32[16, 8], b: float32[8, 8], c: float32[16]}
#     anchors       {a: float32[16, 8], b: float32[8, 8], c: float32[16]}
#     outer_states  ((tracestate, made from [float32[16, 8]], emptystate), (tracestate, made from
#                   [float32[8, 8]], emptystate), (tracestate, made from [float32[16]],
#                   emptystate))
#     outer         a canonical Stochastic Gradient Descent optimizer
#     step          0
#     fragments     ((0,), (1,), (2,))
#     every         7
#     axis          "dp"
#   mesh dp=8
#     params        {a: float32[16, 8], b: float32[8, 8], c: float32[16]}
#     anchors       {a: float32[16, 8], b: float32[8, 8], c: float32[16]}
#     outer_states  ((tracestate, made from [float32[16, 8]], emptystate), (tracestate, made from
#                   [float32[8, 8]], emptystate), (tracestate, made from [float32[16]],
#                   emptystate))
#     outer         a canonical Stochastic Gradient Descent optimizer
#     step          9
#     fragments     ((0,), (1,), (2,))
#     every         7
#     axis          "dp"
#   mesh dp=2,tp=3
#     params        {layers: [float32[6, 4], float32[4, 2]], bias: float32[4], scale: float32[2,
#                   3, 6], out: {w: float32[4, 6]}}
#     anchors       {layers: [float32[6, 4], float32[4, 2]], bias: float32[4], scale: float32[2,
#                   3, 6], out: {w: float32[4, 6]}}
#     outer_states  ((tracestate, made from [float32[4, 6], float32[6, 4]], emptystate),
#                   (tracestate, made from [float32[2, 3, 6]], emptystate), (tracestate, made from
#                   [float32[4, 2], float32[4]], emptystate))
#     outer         a canonical Stochastic Gradient Descent optimizer
#     step          16
#     fragments     ((3, 1), (4,), (2, 0))
#     every         5
#     axis          "dp"
#   mesh dp=2,tp=3
#     params        {layers: [float32[6, 4], float32[4, 2]], bias: float32[4], scale: float32[2,
#                   3, 6], out: {w: float32[4, 6]}}
#     anchors       {layers: [float32[6, 4], float32[4, 2]], bias: float32[4], scale: float32[2,
#                   3, 6], out: {w: float32[4, 6]}}
#     outer_states  ((tracestate, made from [float32[4, 6], float32[6, 4]], emptystate),
#                   (tracestate, made from [float32[2, 3, 6]], emptystate), (tracestate, made from
#                   [float32[4, 2], float32[4]], emptystate))
#     outer         a canonical Stochastic Gradient Descent optimizer
#     step          17
#     fragments     ((3, 1), (4,), (2, 0))
#     every         5
#     axis          "dp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import PyTree


def streaming_round(
    params: PyTree[Array],
    anchors: PyTree[Array],
    outer_states: Sequence[PyTree[Array]],
    outer: optax.GradientTransformation,
    step: int,
    *,
    fragments: Sequence[Sequence[int]],
    every: int,
    axis: str,
) -> tuple[PyTree[Array], PyTree[Array], tuple[PyTree[Array], ...]]:
    """DiLoCo that synchronises a fragment of the parameters at a time, each once in `every` steps.

    `params` are this device's own after `step` local steps. `anchors` are the parameters as they
    were when their fragment was last synchronised; they are equal on all devices. A fragment is a
    list of positions in `jax.tree.leaves(params)`, and each leaf is in exactly one fragment.
    Fragment f of F is due after each step for which `step % every == f*every//F`. What is not due
    stays as it is, bit for bit. `outer` has one state for each fragment, which is that of the list
    of its leaves. Returns the new params, anchors and outer_states.

    Math: delta = anchors - (sum_j params_j)/n; anchors = anchors + the update that `outer` makes of
        delta; params = anchors, for the leaves of the fragments that are due
    Source: Douillard et al. 2025 (Streaming DiLoCo), section 2.2

    Raises:
        ValueError: there are more fragments than steps in which they can be due, or a leaf is in
            none or in several of them.
    """
    raise NotImplementedError(
        "synchronise the fragment that is due after `step`, if one is, and leave all others alone"
    )
