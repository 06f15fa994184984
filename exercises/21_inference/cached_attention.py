"""Exercise cached_attention (lesson 21): a new token of each row attends to a split cache.

Your task: add a token to each row of the cache, and return its attention and both caches.

Save it while `jaxpar` runs, or check it with `jaxpar check cached_attention`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   communication 3  one all-reduce of x's size
#   memory        1  the caches are not copied to more heads, or into float32: at most 3 times the
#                    library's bytes of intermediate results
#   flops         1  each device computes its own heads, of the new tokens only: at most 1.1 times
#                    the library's flops
#   errors        1  ValueError where n does not divide num_heads; num_kv_heads is above n and n
#                    does not divide it; num_kv_heads is below n and does not divide it
#
# Tried with, on each device:
#   mesh tp=2
#     x             float32[6, 16]
#     w_q           float32[16, 64]
#     w_k           float32[16, 16]
#     w_v           float32[16, 16]
#     w_o           float32[64, 16]
#     k_cache       float32[6, 2, 48, 8]
#     v_cache       float32[6, 2, 48, 8]
#     lengths       how many tokens each row has: different numbers, up to what there is room for,
#                   made from int32[6]
#     num_heads     16
#     num_kv_heads  4
#     axis          "tp"
#   mesh dp=2,tpx=6
#     x             float32[4, 20]
#     w_q           float32[20, 16]
#     w_k           float32[20, 4]
#     w_v           float32[20, 4]
#     w_o           float32[16, 20]
#     k_cache       float32[4, 1, 64, 4]
#     v_cache       float32[4, 1, 64, 4]
#     lengths       how many tokens each row has: different numbers, up to what there is room for,
#                   made from int32[4]
#     num_heads     24
#     num_kv_heads  2
#     axis          "tpx"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh,
#                jaxpar.parallel.decode.rotary_by_row, jaxpar.flash.attend and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def cached_attention(
    x: Float[Array, "b d"],
    w_q: Float[Array, "d q_tp"],
    w_k: Float[Array, "d k_tp"],
    w_v: Float[Array, "d k_tp"],
    w_o: Float[Array, "q_tp d"],
    k_cache: Float[Array, "b k s h"],
    v_cache: Float[Array, "b k s h"],
    lengths: Int[Array, " b"],
    *,
    num_heads: int,
    num_kv_heads: int,
    axis: str,
) -> tuple[Float[Array, "b d"], Float[Array, "b k s h"], Float[Array, "b k s h"]]:
    """One token of each row attends to itself and to the tokens in the cache, which it joins.

    Row i has `lengths[i]` tokens in the cache, fewer than s, so its new token has this position:
    its query and key are rotated by it (`rotary_by_row`), and its key and value are written there.
    What is behind a row's tokens has any finite value. There is no bias, and the scale is
    1/sqrt(h).

    x is equal on all devices of the axis, and so is the first result. The heads are split over the
    devices, and the caches by kv heads: in the columns of `w_q`, `w_k` and `w_v`, and in the rows
    of `w_o`, this device has those of its own heads, one head after another. Each kv head serves
    num_heads/num_kv_heads consecutive query heads. If there are fewer kv heads than devices,
    device i has head i*num_kv_heads//n in `w_k`, `w_v` and the caches. The results are y and both
    caches with the new tokens.

    Math: y = sum_j concat(softmax(q k^T / sqrt(h)) v for each head of device j) @ w_o, where k and
        v are the row's in the cache, its new token among them
    Source: Shazeer 2019 (Fast Transformer Decoding), section 2.4; Pope et al. 2022 (Efficiently
        Scaling Transformer Inference), section 3.3

    Raises:
        ValueError: n does not divide `num_heads`, or neither of `num_kv_heads` and n divides the
            other.
    """
    raise NotImplementedError(
        "add a token to each row of the cache, and return its attention and both caches"
    )
