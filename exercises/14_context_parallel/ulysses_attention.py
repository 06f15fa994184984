"""Exercise ulysses_attention (lesson 14): positions exchanged for heads.

Your task: exchange positions for heads, and return causal attention of this device's positions.

Save it while `jaxpar` runs, or check it with `jaxpar check ulysses_attention`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to q, k, v
#   communication 3  q, k, v and the result once each, in their own dtype; kv heads fewer than n
#                    go to n/kv devices each; backward the same
#   flops         1  each device does its part of the matrix products: at most 1.9 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where n does not divide the heads; neither of n and kv divides the
#                    other; the kv heads do not divide the heads
#
# Tried with, on each device:
#   mesh cp=4
#     q     float32[1, 8, 12, 8]
#     k     float32[1, 4, 12, 8]
#     v     float32[1, 4, 12, 8]
#     axis  "cp"
#   mesh dp=2,cp=6
#     q     float32[1, 12, 10, 4]
#     k     float32[1, 2, 10, 4]
#     v     float32[1, 2, 10, 4]
#     axis  "cp"
#   mesh cp=3
#     q     float32[1, 3, 8, 6]
#     k     float32[1, 3, 8, 6]
#     v     float32[1, 3, 8, 6]
#     axis  "cp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh, jaxpar.flash.attend,
#                jaxpar.flash.merge and, of Python's own, collections, dataclasses, functools,
#                itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def ulysses_attention(
    q: Float[Array, "b a t_cp h"],
    k: Float[Array, "b k t_cp h"],
    v: Float[Array, "b k t_cp h"],
    *,
    axis: str,
) -> Float[Array, "b a t_cp h"]:
    """Causal attention where each device computes some heads for all positions.

    Device i has the i-th of n contiguous parts of the positions. Each of the k kv heads serves a/k
    consecutive query heads. All-to-alls of q, k and v exchange positions for heads: device i gets
    the i-th of n equal parts of the heads, for all positions. After attention, an all-to-all of the
    result does the opposite. If there are fewer kv heads than devices, each of them is sent to the
    n/k devices that compute query heads of it, so that `copies`, the larger of 1 and n/k, of each
    are sent.

    Math: y = causal attention of [q_1, ..., q_n], [k_1, ..., k_n] and [v_1, ..., v_n], by heads
    Source: Jacobs et al. 2023 (DeepSpeed Ulysses), section 3

    Raises:
        ValueError: n does not divide the heads, the kv heads do not divide them, or of n and the kv
            heads neither divides the other.
    """
    raise NotImplementedError(
        "exchange positions for heads, and return causal attention of this device's positions"
    )
