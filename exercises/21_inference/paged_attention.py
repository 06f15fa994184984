"""Exercise paged_attention (lesson 21): attention to pages that lie in any order.

Your task: return attention of q to the tokens of each row, whose pages its table lists in order.

Save it while `jaxpar` runs, or check it with `jaxpar check paged_attention`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   communication 3  nothing is sent
#   memory        1  a page of each row at a time, not all pages of a row: at most 3 times the
#                    library's bytes of intermediate results
#   errors        1  ValueError where the kv heads do not divide the heads
#
# Tried with, on each device:
#   mesh dp=1,tp=4
#     q        float32[6, 2, 1, 8]
#     k_pages  float32[80, 1, 16, 8]
#     v_pages  float32[80, 1, 16, 8]
#     table    the pages of each row, by number, made from int32[6, 12]
#     lengths  how many tokens each row has: different numbers, up to what there is room for, made
#              from int32[6]
#   mesh dp=2,tpx=3
#     q        float32[4, 3, 3, 16]
#     k_pages  float32[60, 3, 8, 16]
#     v_pages  float32[60, 3, 8, 16]
#     table    the pages of each row, by number, made from int32[4, 14]
#     lengths  how many tokens each row has: different numbers, up to what there is room for, made
#              from int32[4]
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh, jaxpar.flash.attend,
#                jaxpar.flash.merge and, of Python's own, collections, dataclasses, functools,
#                itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def paged_attention(
    q: Float[Array, "b a t h"],
    k_pages: Float[Array, "p k s h"],
    v_pages: Float[Array, "p k s h"],
    table: Int[Array, "b m"],
    lengths: Int[Array, " b"],
) -> Float[Array, "b a t h"]:
    """Attention to a cache in pages of s tokens, which lie in any order.

    Row i has `lengths[i]` tokens in the cache, and its queries are those of the last t of them;
    each sees the tokens up to its own. `table[i]` lists the row's pages in the order of its tokens.
    What the table lists beyond these, and what is in a page beyond them, may be anything, NaN too.
    Each of the k kv heads serves a/k consecutive query heads. Scores and sums are in float32, or in
    float64 if q is, and the result has the dtype of q.

    A loop takes one page of each row at a time, and merges what it gives (`jaxpar.flash.merge`); it
    ends with the last page of the longest row. So no more than a page of each row is gathered.

    Math: y = softmax(q @ k.T / sqrt(h), over the tokens up to the query's) @ v, where token j is
        in page table[i, j // s], at j % s
    Source: Kwon et al. 2023 (PagedAttention), section 4.1

    Raises:
        ValueError: the kv heads do not divide the heads.
    """
    raise NotImplementedError(
        "return attention of q to the tokens of each row, whose pages its table lists in order"
    )
