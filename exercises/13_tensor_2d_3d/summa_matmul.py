"""Exercise summa_matmul (lesson 13): blocks of a product, on a square of devices.

Your task: return block (i, j) of x @ w on device (i, j) of a square of devices.

Save it while `jaxpar` runs, or check it with `jaxpar check summa_matmul`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        2  every device returns the right result
#   gradient      1  the gradient with respect to x, w
#   sharding      1  each device returns its own part only
#   communication 3  forward the q-1 other blocks of x over `cols`, and of w over `rows`, by
#                    gathers; or twice that in rounds of a block at a time; backward at most twice
#                    what forward may send
#   memory        1  if you send more than gathers do, two blocks of x and of w at a time: at most
#                    twice the library's bytes of intermediate results
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where `rows` = 2, `cols` = 3
#
# Tried with, on each device:
#   mesh dp=2,tpx=2,tpy=2
#     x     float32[24, 40]
#     w     float32[40, 56]
#     rows  "tpx"
#     cols  "tpy"
#   mesh tpy=3,tpz=3
#     x     float32[26, 42]
#     w     float32[42, 34]
#     rows  "tpz"
#     cols  "tpy"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def summa_matmul(
    x: Float[Array, "m_rows k_cols"], w: Float[Array, "k_rows n_cols"], *, rows: str, cols: str
) -> Float[Array, "m_rows n_cols"]:
    """Multiplies two matrices that are split into blocks over a square of q*q devices.

    x is "m_rows k_cols", w is "k_rows n_cols", and the result is "m_rows n_cols": device (i, j) has
    block (i, j) of each.

    Math: y_ij = sum_l x_il @ w_lj
    Source: van de Geijn and Watts 1997 (SUMMA)

    Raises:
        ValueError: `rows` and `cols` have different sizes.
    """
    raise NotImplementedError(
        "return block (i, j) of x @ w on device (i, j) of a square of devices"
    )
