"""Exercise swap_layout (lesson 02): an open challenge: the fewest bytes.

Your task: return this device's block of the array in the layout b_columns d_rows.

Save it while `jaxpar` runs, or check it with `jaxpar check swap_layout`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   sharding      1  each device returns its own part only
#   communication 3  at most (n_rows*n_columns - 1) times x, as much as to gather the whole array;
#                    over either axis or both, by any collective
#   errors        1  ValueError where n_columns does not divide dim 0; n_rows does not divide dim
#                    1
#
# Tried with, on each device:
#   mesh fsdp=2,tp=4
#     x        float32[12, 10]
#     rows     "fsdp"
#     columns  "tp"
#   mesh dp=3,cp=2
#     x        float32[6, 15]
#     rows     "dp"
#     columns  "cp"
# and with others, drawn for each check.
#
# Open challenge  send the fewest bytes from each device in one call, forward, on mesh
#                 fsdp=2,tp=4, as above. Every right answer earns all points. Its number is shown
#                 beside the library's, and the lowest that you have reached is kept.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Shaped


def swap_layout(
    x: Shaped[Array, "b d"], *, rows: str, columns: str
) -> Shaped[Array, "b_swapped d_swapped"]:
    """Takes each device's block of an array from "b_rows d_columns" to "b_columns d_rows".

    Of the array, [n_rows*b, n_columns*d], the device with index i on `rows` and j on `columns`
    holds block i of n_rows along dim 0, and block j of n_columns along dim 1. It returns block j of
    n_columns along dim 0, and block i of n_rows along dim 1. In the mesh, `rows` comes before
    `columns`.

    Math: y = X[j*B/n_columns :, i*D/n_rows :], of B/n_columns rows and D/n_rows columns
    Source: Zhuang et al. 2023 (On Optimizing the Communication of Model Parallelism), section 2

    Raises:
        ValueError: n_columns does not divide the rows of the array, or n_rows its columns.
    """
    raise NotImplementedError(
        "return this device's block of the array in the layout b_columns d_rows"
    )
