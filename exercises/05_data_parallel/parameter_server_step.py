"""Exercise parameter_server_step (lesson 05): one device updates for all.

Your task: return on every device the parameters that `server` computes from the mean gradients.

Save it while `jaxpar` runs, or check it with `jaxpar check parameter_server_step`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   communication 3  permutes and gathers only, no all-reduce; each way, to the server and back,
#                    at most n-1 times the bytes of params
#   flops         1  each device computes with its own examples only: at most 1.6 times the
#                    library's flops in matrix products
#
# Tried with, on each device:
#   mesh dp=4
#     loss_fn    the error of a network with one hidden layer and one output: inputs [b, d],
#                targets [b]
#     params     {w_in: float32[4, 6], bias: float32[6], w_out: float32[6]}
#     batch      {inputs: float32[40, 4], targets: float32[40]}
#     update_fn  a step by the rates in the optimizer's state, one for each element of the
#                parameters
#     axis       "dp"
#     server     3
#   mesh fsdp=3,tp=2
#     loss_fn    the error of a network given as a list of layers: inputs [b, d], targets [b, f]
#     params     [{w: float32[5, 6], scale: float32[6]}, {w: float32[6, 3]}]
#     batch      (float32[60, 5], float32[60, 3])
#     update_fn  a step by the rates in the optimizer's state, one for each element of the
#                parameters
#     axis       "fsdp"
#     server     0
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh, jaxpar.collectives.gather,
#                jaxpar.collectives.tree_broadcast and, of Python's own, collections, dataclasses,
#                functools, itertools, math, operator, typing.

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import PyTree


def parameter_server_step(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    batch: PyTree[Array],
    update_fn: Callable[[Any, Any], Any],
    *,
    axis: str,
    server: int,
) -> PyTree[Array]:
    """The new parameters, on every device, as the server computes them from the mean gradients.

    `params` are equal on all devices of the axis, and typed so; `batch` is this device's shard.
    `update_fn(params, gradients)` matters only on the server, which holds the optimizer's state;
    its results on the other devices are not used, and may be NaN or infinite.

    Math: y = update_fn(params, (sum_j gradients_j) / n), as the server computes it
    Source: Li et al. 2014 (Scaling Distributed Machine Learning with the Parameter Server)
    """
    raise NotImplementedError(
        "return on every device the parameters that `server` computes from the mean gradients"
    )
