"""Exercise attention_over_shards (lesson 14): keys that are split, and queries that are not.

Your task: return attention of q to the keys of all devices, of which this device has a part.

Save it while `jaxpar` runs, or check it with `jaxpar check attention_over_shards`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to q, k, v
#   communication 3  all-reduces of the size of the result and of two numbers for each of its
#                    rows, in float32; backward one all-reduce of q
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where the kv heads do not divide the heads
#
# Tried with, on each device:
#   mesh tp=4
#     q     float32[2, 6, 3, 8]
#     k     float32[2, 2, 20, 8]
#     v     float32[2, 2, 20, 8]
#     axis  "tp"
#   mesh dp=2,cp=3
#     q     float32[1, 4, 5, 4]
#     k     float32[1, 4, 12, 4]
#     v     float32[1, 4, 12, 4]
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


def attention_over_shards(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k s_cp h"],
    v: Float[Array, "b k s_cp h"],
    *,
    axis: str,
) -> Float[Array, "b a t h"]:
    """Attention of queries that all devices have, to keys that are split over the devices.

    Nothing is masked. Each of the k kv heads serves a/k consecutive query heads. q is equal on all
    devices, and k and v are this device's parts of the keys and values. Each device attends to its
    own keys (`jaxpar.flash.attend`), and the parts of all devices are merged by all-reduces, in
    float32 or in float64 if the arguments are. The result is equal on all devices, and has the
    dtype of q.

    Math: y = softmax(q @ [k_1, ..., k_n].T / sqrt(h)) @ [v_1, ..., v_n]
    Source: Shyam et al. 2024 (Tree Attention), section 5

    Raises:
        ValueError: the kv heads do not divide the heads.
    """
    raise NotImplementedError(
        "return attention of q to the keys of all devices, of which this device has a part"
    )
