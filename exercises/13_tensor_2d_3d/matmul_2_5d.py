"""Exercise matmul_2_5d (lesson 13): several squares, and one matrix in all.

Your task: return this device's block of x @ w, where the rows of x are split over `depth`, too.

Save it while `jaxpar` runs, or check it with `jaxpar check matmul_2_5d`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        2  every device returns the right result
#   gradient      1  the gradient with respect to x, w
#   sharding      1  each device returns its own part only
#   communication 3  in each square as for summa_matmul; over `depth` nothing forward, and
#                    backward one all-reduce of the gradient of a block of w
#   memory        1  if you send more than gathers do, two blocks of x and of w at a time: at most
#                    twice the library's bytes of intermediate results
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where `rows` = 2, `cols` = 3
#
# Tried with, on each device:
#   mesh dp=2,tpx=2,tpy=2,tpz=2
#     x      float32[6, 10]
#     w      float32[10, 8]
#     rows   "tpx"
#     cols   "tpy"
#     depth  "tpz"
#   mesh tpx=3,tpy=2,tpz=2
#     x      float32[5, 14]
#     w      float32[14, 12]
#     rows   "tpy"
#     cols   "tpz"
#     depth  "tpx"
#   mesh tpx=1,tpy=3,tpz=3
#     x      float32[5, 6]
#     w      float32[6, 4]
#     rows   "tpz"
#     cols   "tpy"
#     depth  "tpx"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def matmul_2_5d(
    x: Float[Array, "m_depth_rows k_cols"],
    w: Float[Array, "k_rows n_cols"],
    *,
    rows: str,
    cols: str,
    depth: str,
) -> Float[Array, "m_depth_rows n_cols"]:
    """Multiplies on several squares of q*q devices, which split the rows of x and replicate w.

    x is "m_depth_rows k_cols", w is "k_rows n_cols", and the result is "m_depth_rows n_cols". w is
    equal over `depth`, and typed so; its gradient is the sum over all squares.

    Math: y_hij = sum_l x_hil @ w_lj on square h
    Source: Wang, Xu, Bian and You 2022 (Tesseract)

    Raises:
        ValueError: `rows` and `cols` have different sizes.
    """
    raise NotImplementedError(
        "return this device's block of x @ w, where the rows of x are split over `depth`, too"
    )
