"""Exercise moe_token_choice (lesson 17): tokens travel to experts that have room.

Your task: send each token to its experts, as far as they have room, and add up what comes back.

Save it while `jaxpar` runs, or check it with `jaxpar check moe_token_choice`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        3  every device returns the right result
#   gradient      1  the gradient with respect to x, weights, w_gate, w_up, w_down
#   sharding      1  each device returns its own part only
#   communication 3  two all-to-alls of the rows of all experts, backward as many
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where capacity = 0
#
# Tried with, on each device:
#   mesh ep=4
#     x         float32[64, 32]
#     weights   float32[64, 2]
#     experts   k different experts for each token, some of them more often than others, made from
#               int32[64, 2]
#     w_gate    float32[2, 32, 24]
#     w_up      float32[2, 32, 24]
#     w_down    float32[2, 24, 32]
#     capacity  20
#     axis      "ep"
#   mesh dp=2,ep=3
#     x         float32[30, 12]
#     weights   float32[30, 1]
#     experts   k different experts for each token, some of them more often than others, made from
#               int32[30, 1]
#     w_gate    float32[2, 12, 20]
#     w_up      float32[2, 12, 20]
#     w_down    float32[2, 20, 12]
#     capacity  6
#     axis      "ep"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh, jaxpar.experts.apply_experts
#                and, of Python's own, collections, dataclasses, functools, itertools, math,
#                operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def moe_token_choice(
    x: Float[Array, "t d"],
    weights: Float[Array, "t k"],
    experts: Int[Array, "t k"],
    w_gate: Float[Array, "e_ep d f"],
    w_up: Float[Array, "e_ep d f"],
    w_down: Float[Array, "e_ep f d"],
    *,
    capacity: int,
    axis: str,
) -> Float[Array, "t d"]:
    """Each token goes to its k experts, each of which takes `capacity` tokens of every device.

    Device i has the i-th of n equal parts of the experts, which are gated MLPs
    (`jaxpar.experts.apply_experts`). `experts` has the numbers of the experts that each of this
    device's own tokens has chosen, the first choice in column 0, and `weights` has the weights of
    their results. Of the tokens of a device that choose the same expert, first choices come before
    second ones, and then earlier tokens before later ones. What exceeds the capacity is dropped,
    and adds 0 to the result. One all-to-all brings the rows to their experts, empty ones too, and
    one brings the results back. Rows and results travel in the dtype of x, and the sum has this
    dtype, too.

    Math: y = sum_i weights_i * mlp_{experts_i}(x) over the choices i that are not dropped
    Source: Lepikhin et al. 2020 (GShard), section 3; Fedus, Zoph and Shazeer 2021 (Switch),
        section 2.2

    Raises:
        ValueError: `capacity` is below 1.
    """
    raise NotImplementedError(
        "send each token to its experts, as far as they have room, and add up what comes back"
    )
