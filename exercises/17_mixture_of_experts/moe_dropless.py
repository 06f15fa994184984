"""Exercise moe_dropless (lesson 17): all tokens come, and none is dropped.

Your task: gather all tokens, and return the sums for this device's; `skip` is not judged.

Save it while `jaxpar` runs, or check it with `jaxpar check moe_dropless`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to x, weights, w_gate, w_up, w_down
#   sharding      1  each device returns its own part only
#   communication 3  an all-gather of x, weights and experts, and a reduce-scatter of the sums;
#                    backward an all-gather of the result's gradient, and reduce-scatters of those
#                    of x and of weights
#   flops         1  each choice is multiplied by its expert's matrices, and groups are padded to
#                    full blocks: at most 1.25 times the library's flops, and as many products; a
#                    gradient may compute the forward pass again
#
# Tried with, on each device:
#   mesh ep=4
#     x        float32[12, 16]
#     weights  float32[12, 2]
#     experts  k different experts for each token, some of them more often than others, made from
#              int32[12, 2]
#     w_gate   float32[6, 16, 24]
#     w_up     float32[6, 16, 24]
#     w_down   float32[6, 24, 16]
#     block    4
#     axis     "ep"
#   mesh dp=2,ep=2
#     x        float32[15, 9]
#     weights  float32[15, 1]
#     experts  k different experts for each token, some of them more often than others, made from
#              int32[15, 1]
#     w_gate   float32[5, 9, 20]
#     w_up     float32[5, 9, 20]
#     w_down   float32[5, 20, 9]
#     block    3
#     axis     "ep"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh, jaxpar.experts.grouped_matmul
#                and, of Python's own, collections, dataclasses, functools, itertools, math,
#                operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def moe_dropless(
    x: Float[Array, "t d"],
    weights: Float[Array, "t k"],
    experts: Int[Array, "t k"],
    w_gate: Float[Array, "e_ep d f"],
    w_up: Float[Array, "e_ep d f"],
    w_down: Float[Array, "e_ep f d"],
    *,
    block: int,
    axis: str,
    skip: bool = False,
) -> Float[Array, "t d"]:
    """Each token goes to its k experts, however many choose the same one.

    Device i has the i-th of n equal parts of the experts, which are gated MLPs. All tokens are
    gathered, with their `weights` and `experts` (as in `moe_token_choice`). Each device sorts the
    choices that fall on its own experts to the front, expert after expert, and multiplies these
    groups of rows by blocks (`grouped_matmul`, which `block` and `skip` are for). It adds up its
    experts' results, by weight, for each token of all devices. Then a reduce-scatter adds up these
    sums over the devices, and returns to each device those of its own tokens, in the dtype of x.

    Math: y = sum_i weights_i * mlp_{experts_i}(x) over the choices i
    Source: Gale et al. 2022 (MegaBlocks), sections 4 and 5
    """
    raise NotImplementedError(
        "gather all tokens, and return the sums for this device's; `skip` is not judged"
    )
