"""Exercise matmul_3d (lesson 13): one product on each device of a cube.

Your task: return this device's rows of a block of x @ w, summed over `z_axis`.

Save it while `jaxpar` runs, or check it with `jaxpar check matmul_3d`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        3  every device returns the right result
#   gradient      1  the gradient with respect to x, w
#   sharding      1  each device returns its own part only
#   communication 3  forward the other blocks of x over `y_axis`, and of w over `x_axis`, and one
#                    reduce-scatter over `z_axis`; backward as many bytes over each
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where 4 rows of y_ij, `z_axis` = 3
#
# Tried with, on each device:
#   mesh dp=2,tpx=2,tpy=2,tpz=2
#     x       float32[6, 10]
#     w       float32[10, 7]
#     x_axis  "tpx"
#     y_axis  "tpy"
#     z_axis  "tpz"
#   mesh tpx=3,tpy=3,tpz=1
#     x       float32[12, 9]
#     w       float32[9, 5]
#     x_axis  "tpy"
#     y_axis  "tpz"
#     z_axis  "tpx"
#   mesh tpx=3,tpy=1,tpz=2
#     x       float32[4, 8]
#     w       float32[8, 3]
#     x_axis  "tpz"
#     y_axis  "tpx"
#     z_axis  "tpy"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def matmul_3d(
    x: Float[Array, "m_x_y k_z"],
    w: Float[Array, "k_z n_y_x"],
    *,
    x_axis: str,
    y_axis: str,
    z_axis: str,
) -> Float[Array, "m_x_z n_y"]:
    """Multiplies on a cube of devices, each of which computes a single product of two blocks.

    x is "m_x_y k_z", w is "k_z n_y_x", and the result is "m_x_z n_y", where x, y and z stand for
    the axes that `x_axis`, `y_axis` and `z_axis` name. Their sizes may differ.

    Math: y_ij = sum_l x_il @ w_lj on device (i, j, l), which then keeps its rows of y_ij
    Source: Agarwal et al. 1995 (3D product); Bian, Xu, Wang and You 2021 (its use in a model)

    Raises:
        ValueError: the size of `z_axis` does not divide the rows of y_ij.
    """
    raise NotImplementedError("return this device's rows of a block of x @ w, summed over `z_axis`")
