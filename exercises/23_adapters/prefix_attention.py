"""Exercise prefix_attention (lesson 23): learned keys and values before the first position.

Your task: return causal attention in which every query also sees the whole prefix.

Save it while `jaxpar` runs, or check it with `jaxpar check prefix_attention`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   gradient      1  the gradient with respect to q, k, v, prefix_k, prefix_v
#   communication 3  nothing is sent forward; backward one all-reduce of the prefix's gradients
#                    over the devices that have other examples
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#
# Tried with, on each device:
#   mesh tp=4
#     q         float32[2, 2, 16, 8]
#     k         float32[2, 1, 16, 8]
#     v         float32[2, 1, 16, 8]
#     prefix_k  float32[1, 6, 8]
#     prefix_v  float32[1, 6, 8]
#   mesh dp=2,tp=2
#     q         float32[4, 3, 7, 4]
#     k         float32[4, 3, 7, 4]
#     v         float32[4, 3, 7, 4]
#     prefix_k  float32[3, 12, 4]
#     prefix_v  float32[3, 12, 4]
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh, jaxpar.nn.attention,
#                jaxpar.flash.attend, jaxpar.flash.merge and, of Python's own, collections,
#                dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def prefix_attention(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k t h"],
    v: Float[Array, "b k t h"],
    prefix_k: Float[Array, "k p h"],
    prefix_v: Float[Array, "k p h"],
) -> Float[Array, "b a t h"]:
    """Causal attention in which every query also sees p learned keys and values before the first.

    Queries and keys have been rotated by their positions, from 0; the prefix has no positions, and
    is used as it is. Each of the k kv heads serves a/k consecutive query heads. Every example has
    the same prefix. The result has the dtype of q.

    Math: y_t = softmax_s(q_t @ [prefix_k, k_1, ..., k_t]_s / sqrt(h)) @ [prefix_v, v_1, ..., v_t]
    Source: Li and Liang 2021 (Prefix-Tuning), section 4.1; Liu et al. 2022 (P-Tuning v2), section 3
    """
    raise NotImplementedError(
        "return causal attention in which every query also sees the whole prefix"
    )
