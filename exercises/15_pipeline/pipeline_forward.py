"""Exercise pipeline_forward (lesson 15): microbatches through all stages, one each tick.

Your task: return device 0's microbatches after all stages, on the last device: one each tick.

Save it while `jaxpar` runs, or check it with `jaxpar check pipeline_forward`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to params, microbatches
#   communication 3  m+n-1 permutes of one microbatch to a neighbour, and as many backward;
#                    nothing else
#   memory        1  what m+n-1 ticks keep: at most twice the library's bytes of intermediate
#                    results, forward and backward
#   flops         1  one call of stage_fn in each tick: at most 1.1 times the library's flops of
#                    matrix products; a gradient may compute the forward pass again
#
# Tried with, on each device:
#   mesh pp=4
#     stage_fn      two matrices with tanh between, added to x [..., d]
#     params        {up: float32[16, 32], down: float32[32, 16]}
#     microbatches  float32[6, 2, 8, 16]
#     axis          "pp"
#   mesh node=3,device=2
#     stage_fn      one square matrix, a bias and tanh for x [..., d]: zeros do not stay zeros
#     params        (float32[24, 24], float32[24])
#     microbatches  float32[2, 20, 24]
#     axis          "node"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PyTree


def pipeline_forward(
    stage_fn: Callable[[Any, Array], Array],
    params: PyTree[Array],
    microbatches: Float[Array, "m ..."],
    *,
    axis: str,
) -> Float[Array, "m ..."]:
    """GPipe's forward pass: in every tick, each device computes a microbatch and sends it on.

    `stage_fn(params, x) -> x` is the stage of this device; x has the shape of a microbatch. Only
    the microbatches of device 0 are used. The last device returns their results, in order, and the
    others return zeros. The derivative is GPipe's backward pass.

    Math: y_k = stage_(n-1)(... stage_1(stage_0(microbatches_k)))
    Source: Huang et al. 2019 (GPipe), section 2.3
    """
    raise NotImplementedError(
        "return device 0's microbatches after all stages, on the last device: one each tick"
    )
