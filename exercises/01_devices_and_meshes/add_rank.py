"""Exercise add_rank (lesson 01): add this device's index.

Your task: return x plus the index of this device on `axis`, in the dtype of x.

Save it while `jaxpar` runs, or check it with `jaxpar check add_rank`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   gradient      1  the gradient with respect to x
#   communication 3  nothing is sent
#
# Tried with, on each device:
#   mesh tp=8
#     x     float32[6]
#     axis  "tp"
#   mesh dp=3,tp=2
#     x     bfloat16[2, 3, 4]
#     axis  "dp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Num


def add_rank(x: Num[Array, "..."], *, axis: str) -> Num[Array, "..."]:
    """Adds the index of this device on the axis to x; the result has the dtype of x.

    Math: y = x + i on device i
    Source: MPI 4.1, section 7.4.1 (MPI_Comm_rank)
    """
    raise NotImplementedError("return x plus the index of this device on `axis`, in the dtype of x")
