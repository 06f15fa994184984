"""Exercise flash_attention (lesson 14): one tile of scores after another, and back.

Your task: return causal attention of q, k and v, one tile of scores after another.

Save it while `jaxpar` runs, or check it with `jaxpar check flash_attention`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        3  every device returns the right result
#   gradient      1  the gradient with respect to q, k, v
#   communication 3  nothing is sent
#   memory        1  the scores of one tile, forward and with the gradient: at most twice the
#                    library's bytes of intermediate results
#   flops         1  tiles in which no query sees a key are skipped, and the gradient computes the
#                    scores of a tile once more: at most 1.15 times the library's flops
#   errors        1  ValueError where tile does not divide t; the kv heads do not divide the heads
#
# Tried with, on each device:
#   mesh tp=2
#     q     float32[1, 4, 512, 8]
#     k     float32[1, 2, 512, 8]
#     v     float32[1, 2, 512, 8]
#     tile  32
#   mesh dp=3
#     q     float32[1, 2, 384, 16]
#     k     float32[1, 1, 384, 16]
#     v     float32[1, 1, 384, 16]
#     tile  48
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def flash_attention(
    q: Float[Array, "b a t h"], k: Float[Array, "b k t h"], v: Float[Array, "b k t h"], *, tile: int
) -> Float[Array, "b a t h"]:
    """Causal attention by tiles of `tile` queries and as many keys, with its own backward pass.

    Each of the k kv heads serves a/k consecutive query heads. Only tiles in which some query sees
    some key are computed. With n = t/tile tiles in a row, these are (n+1)/2n of all tiles. Beside
    q, k, v and the result, one number for each query (its log-sum-exp) is kept for the backward
    pass, which computes the scores of each tile once more. The result has the dtype of q, and each
    gradient that of its argument. Softmax and all sums are in float32, or in float64 if the
    arguments are.

    Math: y = softmax(q @ k.T / sqrt(h), over the keys up to the query's position) @ v
    Source: Dao 2023 (FlashAttention-2), section 3.1, algorithms 1 and 2

    Raises:
        ValueError: `tile` does not divide t, or the kv heads do not divide the heads.
    """
    raise NotImplementedError(
        "return causal attention of q, k and v, one tile of scores after another"
    )
