"""Exercise grouped_matmul (lesson 17): each group of rows times its own matrix.

Your task: multiply each group of rows by its own matrix, in blocks; `skip` is not judged.

Save it while `jaxpar` runs, or check it with `jaxpar check grouped_matmul`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        3  every device returns the right result
#   gradient      1  the gradient with respect to x, w
#   communication 3  nothing is sent
#   memory        1  no matrix is copied for a row or for a block: at most twice the library's
#                    bytes of intermediate results, forward
#   flops         1  each row is multiplied by one matrix, and groups are padded to full blocks:
#                    at most 1.25 times the library's flops, and as many products; a gradient may
#                    compute the forward pass again
#   errors        1  ValueError where block = 0
#
# Tried with, on each device:
#   mesh ep=4
#     x      float32[100, 48]
#     w      float32[8, 48, 40]
#     sizes  sizes of groups, of which some may be 0, and some may have most rows, made from
#            int32[1, 8]
#     block  4
#   mesh dp=2,tp=3
#     x      float32[45, 20]
#     w      float32[5, 20, 30]
#     sizes  sizes of groups, of which some may be 0, and some may have most rows, made from
#            int32[1, 5]
#     block  6
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def grouped_matmul(
    x: Float[Array, "t d"],
    w: Float[Array, "e d f"],
    sizes: Int[Array, " e"],
    *,
    block: int,
    skip: bool = False,
) -> Float[Array, "t f"]:
    """Multiplies each of e groups of rows by its own matrix; rows after the last group give 0.

    The first sizes[0] rows are multiplied by w[0], the next sizes[1] by w[1], and so on. Each group
    is padded to full blocks of `block` rows, so that all rows of a block have the same matrix.
    There are at most (t + e*(block-1)) / block blocks, and all of these are computed, so that the
    number of products is known when the program is traced. With `skip`, only blocks that hold rows
    of a group are computed, and their number is known only when the program runs. On GPUs and TPUs
    this calls `jax.lax.ragged_dot`, whose kernels need no padding; on CPUs, that function
    multiplies all rows by all matrices.

    Math: y_i = x_i @ w_i for the rows of each group i
    Source: Gale et al. 2022 (MegaBlocks), section 5

    Raises:
        ValueError: `block` is below 1.
    """
    raise NotImplementedError(
        "multiply each group of rows by its own matrix, in blocks; `skip` is not judged"
    )
