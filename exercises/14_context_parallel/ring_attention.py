"""Exercise ring_attention (lesson 14): keys and values go round a ring.

Your task: return causal attention of this device's queries, while keys and values go round a ring.

Save it while `jaxpar` runs, or check it with `jaxpar check ring_attention`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        3  every device returns the right result
#   gradient      1  the gradient with respect to q, k, v
#   communication 3  permutes to a neighbour only, (n-1) times k and v; backward at most (n-1)
#                    times k and v, and n times their gradients, which may be float32
#   memory        1  the keys and values of one other device: at most twice the library's bytes of
#                    intermediate results; with the gradient, where keys and values may be kept,
#                    four times
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where the kv heads do not divide the heads
#
# Tried with, on each device:
#   mesh cp=8
#     q     float32[1, 4, 32, 32]
#     k     float32[1, 4, 32, 32]
#     v     float32[1, 4, 32, 32]
#     axis  "cp"
#   mesh dp=2,cp=3
#     q     float32[1, 6, 32, 8]
#     k     float32[1, 2, 32, 8]
#     v     float32[1, 2, 32, 8]
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


def ring_attention(
    q: Float[Array, "b a t_cp h"],
    k: Float[Array, "b k t_cp h"],
    v: Float[Array, "b k t_cp h"],
    *,
    axis: str,
) -> Float[Array, "b a t_cp h"]:
    """Causal attention while keys and values travel round a ring.

    Device i has the i-th of n contiguous parts of the positions. Each of the k kv heads serves a/k
    consecutive query heads. In each round every device sends keys and values on to the next device,
    and merges attention to those that have arrived into its result (`jaxpar.flash.attend` and
    `merge`). Beside its own it holds the keys and values of one other device, and those that arrive
    meanwhile, and never more. In the backward pass they travel once more, and their gradients
    travel with them, in float32 at least. Softmax and all sums are in float32, or in float64 if the
    arguments are. The result has the dtype of q, and each gradient that of its argument.

    Math: y = merge over j of attend(q, k_j, v_j), where a query sees the keys up to its own
        position
    Source: Liu, Zaharia and Abbeel 2023 (Ring Attention), section 3

    Raises:
        ValueError: the kv heads do not divide the heads.
    """
    raise NotImplementedError(
        "return causal attention of this device's queries, while keys and values go round a ring"
    )
