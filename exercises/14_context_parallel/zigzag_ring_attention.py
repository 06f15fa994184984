"""Exercise zigzag_ring_attention (lesson 14): a ring in which all devices have equal work.

Your task: return causal attention round a ring, with two half blocks in each round after the
first.

Save it while `jaxpar` runs, or check it with `jaxpar check zigzag_ring_attention`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        3  every device returns the right result
#   gradient      1  the gradient with respect to q, k, v
#   communication 3  permutes to a neighbour only, (n-1) times k and v; backward at most (n-1)
#                    times k and v, and n times their gradients, which may be float32
#   memory        1  the keys and values of one other device: at most twice the library's bytes of
#                    intermediate results; with the gradient, where keys and values may be kept,
#                    four times
#   flops         1  (2n+1)/4n of all scores, on every device: at most 1.05 times the library's
#                    flops; a gradient may compute the forward pass again
#   errors        1  ValueError where a device has an odd number of positions; the kv heads do not
#                    divide the heads
#
# Tried with, on each device:
#   mesh cp=4
#     q     float32[1, 6, 64, 8]
#     k     float32[1, 2, 64, 8]
#     v     float32[1, 2, 64, 8]
#     axis  "cp"
#   mesh dp=2,cp=3
#     q     float32[1, 4, 40, 8]
#     k     float32[1, 4, 40, 8]
#     v     float32[1, 4, 40, 8]
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


def zigzag_ring_attention(
    q: Float[Array, "b a t_cp h"],
    k: Float[Array, "b k t_cp h"],
    v: Float[Array, "b k t_cp h"],
    *,
    axis: str,
) -> Float[Array, "b a t_cp h"]:
    """Causal attention round a ring in which all devices have equal work.

    The sequence is cut into 2n chunks, and device i has chunks i and 2n-1-i, one after the other.
    Each of the k kv heads serves a/k consecutive query heads. The scores of a device's two chunks
    of queries with the two chunks of keys of another device are four quarters, of which two are
    needed: the later queries see the earlier keys, and either the earlier queries see these, too,
    or the later queries see the later keys. Only these two are computed. Of the scores with its own
    keys, a device computes three quarters. That makes (2n+1)/4n of all scores on every device. In
    all else this is as `ring_attention`.

    Math: y = merge over j of attend(q, k_j, v_j), where a query sees the keys up to its own
        position
    Source: zhuzilin/ring-flash-attention, issue 2; Llama Team 2024, section 3.3.2

    Raises:
        ValueError: the kv heads do not divide the heads, or t_cp is odd.
    """
    raise NotImplementedError(
        "return causal attention round a ring, with two half blocks in each round after the first"
    )
