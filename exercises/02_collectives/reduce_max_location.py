"""Exercise reduce_max_location (lesson 02): the maximum, and who holds it.

Your task: return (maximum over devices, int32 lowest index of a device that holds it).

Save it while `jaxpar` runs, or check it with `jaxpar check reduce_max_location`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   communication 3  at most two all-reduces of x and one of the indices; no gather
#   memory        1  at most 3 times the library's bytes of intermediate results
#
# Tried with, on each device:
#   mesh tp=8
#     x     float32[1024]
#     axis  "tp"
#   mesh dp=5,tp=2
#     x     float32[10, 4, 2]
#     axis  "dp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Int32, Num


def reduce_max_location(
    x: Num[Array, "..."], *, axis: str
) -> tuple[Num[Array, "..."], Int32[Array, "..."]]:
    """Finds, element by element, the largest x of all devices and the device that holds it.

    The results are equal on every device. Where several devices hold the largest value, the result
    is the lowest of their indices.

    Math: y = max_j x_j, and min {j : x_j = y}
    Source: MPI 4.1, section 6.9.4 (MPI_MAXLOC)
    """
    raise NotImplementedError(
        "return (maximum over devices, int32 lowest index of a device that holds it)"
    )
