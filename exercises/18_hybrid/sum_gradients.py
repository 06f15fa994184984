"""Exercise sum_gradients (lesson 18): sum each gradient over what its type says.

Your task: sum each gradient over the axes over which its type varies and which its spec lacks.

Save it while `jaxpar` runs, or check it with `jaxpar check sum_gradients`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        7  every device returns the right result
#   communication 3  one all-reduce of each gradient, over those axes together; nothing for what
#                    is summed
#
# Tried with, on each device:
#   mesh dp=2,ep=2,tp=2
#     grads  {experts: float32[2, 6, 5], gains: [float32[6], float32[10]], summed: {gain:
#            float32[6], w: float32[6, 6]}, table: float32[7, 6], w: float32[6, 4]}
#     specs  {"experts": P("ep",), "gains": [P(), P()], "summed": {"gain": P(), "w": P(None,
#            "tp")}, "table": P("tp",), "w": P(None, "tp")}
#   mesh pp=2,dp=3
#     grads  {ends: [float32[9, 4], float32[2, 4], float32[4]], layers: {gain: float32[2, 8], w:
#            float32[2, 4, 7]}}
#     specs  {"ends": [P(), P(("pp", "dp"),), P()], "layers": {"gain": P("pp",), "w": P("pp",)}}
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, P, lax
from jaxtyping import PyTree


def sum_gradients(grads: PyTree[Array], specs: PyTree[P]) -> PyTree[Array]:
    """Sums each gradient over the axes by which its type varies and which its spec does not name.

    `specs` has a partition spec for each gradient, which says how its sum is split. A gradient that
    differs between devices along any other axis is a part of a sum. Which axes these are is in its
    type: `jaxpar.mesh.varying_axes(gradient)`. So no list of special parameters is needed. What is
    equal on all devices of an axis is summed over it already.

    Math: y = sum_j x_j, over the axes in varying_axes(x) that its spec does not name
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3; Korthikanti et al. 2022, section 4.2.2
    """
    raise NotImplementedError(
        "sum each gradient over the axes over which its type varies and which its spec lacks"
    )
