"""Exercise load_balance_loss (lesson 17): a loss of the tokens of all devices.

Your task: return e times the sum of f_i * p_i, where f and p are of the tokens of all devices.

Save it while `jaxpar` runs, or check it with `jaxpar check load_balance_loss`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   gradient      1  the gradient with respect to scores
#   communication 3  one all-reduce of two numbers for each expert, or two of one number
#
# Tried with, on each device:
#   mesh ep=4
#     scores   float32[20, 8]
#     experts  k different experts for each token, some of them more often than others, made from
#              int32[20, 2]
#     axis     "ep"
#   mesh dp=2,fsdp=3
#     scores   float32[15, 6]
#     experts  k different experts for each token, some of them more often than others, made from
#              int32[15, 1]
#     axis     ("dp", "fsdp")
#   mesh dp=3,tp=2
#     scores   float32[12, 5]
#     experts  k different experts for each token, some of them more often than others, made from
#              int32[12, 2]
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


def load_balance_loss(
    scores: Float[Array, "t e"], experts: Int[Array, "t k"], *, axis: Axis
) -> Float[Array, ""]:
    """How unevenly the tokens of all devices choose their experts; 1 if they do so evenly.

    f_i is the fraction of all choices that fall on expert i, and is a constant for the gradient;
    p_i is the mean score of expert i. Both are taken over the tokens of all devices of `axis`. If
    each device took the loss of its own tokens, the mean of these losses would be another number,
    which asks every device for balance by itself.

    Math: loss = e * sum_i f_i * p_i
    Source: Fedus, Zoph and Shazeer 2021 (Switch), section 2.2; Qiu et al. 2025 (Demons in the
        Detail), section 3
    """
    raise NotImplementedError(
        "return e times the sum of f_i * p_i, where f and p are of the tokens of all devices"
    )
