"""Exercise prune_2_4 (lesson 22): two of every four numbers.

Your task: keep the two largest magnitudes of every four neighbours in a column.

Save it while `jaxpar` runs, or check it with `jaxpar check prune_2_4`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to w
#   sharding      1  each device returns its own part only
#   communication 3  nothing is sent
#   errors        1  ValueError where 30 rows; 2 rows
#
# Tried with, on each device:
#   mesh dp=2
#     w  float32[32, 24]
#   mesh tp=4
#     w  float32[12, 10]
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def prune_2_4(w: Float[Array, "d f"]) -> Float[Array, "d f"]:
    """Keeps two numbers of every four neighbours in a column, those of the largest magnitudes.

    The others are set to 0. Dim d is the one that a product sums over, in x @ w, and rows 0 to 3
    are the first four neighbours, rows 4 to 7 the next. Of equal magnitudes, those that come first
    are kept. The result has the shape and the dtype of w.

    Math: y_ik = w_ik if fewer than 2 of the numbers in rows 4*(i//4) to 4*(i//4)+3 of column k are
        larger in magnitude, or as large and before it; else 0
    Source: Mishra et al. 2021 (Accelerating Sparse Deep Neural Networks), section 3

    Raises:
        ValueError: 4 does not divide the rows.
    """
    raise NotImplementedError(
        "keep the two largest magnitudes of every four neighbours in a column"
    )
