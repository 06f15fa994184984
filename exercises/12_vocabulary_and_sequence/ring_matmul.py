"""Exercise ring_matmul (lesson 12): a product whose rows travel.

Your task: return all rows times this device's columns, by a ring: never hold all rows.

Save it while `jaxpar` runs, or check it with `jaxpar check ring_matmul`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to x, w
#   communication 3  permutes to a neighbour only, (n-1) times x; backward at most twice that
#   memory        1  never all rows, and once all blocks with the gradient: at most 2.5 times the
#                    library's bytes of intermediate results
#   flops         1  each device does its part of the matrix products: at most 1.7 times the
#                    library's flops; a gradient may compute the forward pass again
#
# Tried with, on each device:
#   mesh tp=8
#     x     float32[12, 96]
#     w     float32[96, 4]
#     axis  "tp"
#   mesh dp=2,tpx=3
#     x     float32[10, 56]
#     w     float32[56, 5]
#     axis  "tpx"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def ring_matmul(
    x: Float[Array, "t_tp d"], w: Float[Array, "d f_tp"], *, axis: str
) -> Float[Array, "t f_tp"]:
    """Multiplies all rows by this device's columns, though no device ever holds all rows.

    x is this device's rows, and w is this device's columns of the full matrix. Each round
    multiplies the rows that are here, and sends them on to the next device. x and w have the same
    dtype, in which the rows travel, and which the result has.

    Math: y = [x_1, ..., x_n] @ w
    Source: Wang et al. 2023 (Overlap Communication with Dependent Computation), all-gather case
    """
    raise NotImplementedError(
        "return all rows times this device's columns, by a ring: never hold all rows"
    )
