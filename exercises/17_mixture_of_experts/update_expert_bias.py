"""Exercise update_expert_bias (lesson 17): balance without a loss.

Your task: return the bias, moved by `rate` up or down against the load of the tokens of all
devices.

Save it while `jaxpar` runs, or check it with `jaxpar check update_expert_bias`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        7  every device returns the right result
#   communication 3  one all-reduce of one number for each expert
#
# Tried with, on each device:
#   mesh dp=4
#     bias     float32[8]
#     experts  k different experts for each token, some of them more often than others, made from
#              int32[8, 2]
#     rate     0.25
#     axis     "dp"
#   mesh ep=2,cp=3
#     bias     float32[5]
#     experts  k different experts for each token, some of them more often than others, made from
#              int32[7, 1]
#     rate     0.5
#     axis     ("ep", "cp")
#   mesh pp=2,dp=3
#     bias     float32[7]
#     experts  k different experts for each token, some of them more often than others, made from
#              int32[10, 2]
#     rate     0.0625
#     axis     "dp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from jaxpar.mesh import Axis


def update_expert_bias(
    bias: Float[Array, " e"], experts: Int[Array, "t k"], *, rate: float, axis: Axis
) -> Float[Array, " e"]:
    """Raises the bias of experts below the mean load, and lowers that of experts above it.

    The load of an expert is the number of choices that fall on it, of the tokens of all devices of
    `axis` in a step. Each bias moves by `rate`, or stays if its expert has just the mean load.
    `route` adds the bias to the scores where it chooses. So the load is balanced without a loss,
    whose gradient would disturb the model.

    Math: bias_i + rate * sign(mean load - load_i)
    Source: Wang et al. 2024 (Auxiliary-loss-free load balancing), algorithm 1
    """
    raise NotImplementedError(
        "return the bias, moved by `rate` up or down against the load of the tokens of all devices"
    )
