"""Exercise recursive_doubling_all_reduce (lesson 03): a sum in log2 n exchanges.

Your task: return on every device the sum of x over `axis`, in log2 n permutes.

Save it while `jaxpar` runs, or check it with `jaxpar check recursive_doubling_all_reduce`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   gradient      1  the gradient with respect to x
#   communication 3  permutes only, log2 n of them, each of x
#   errors        1  ValueError where n = 6; n = 3; n = 5; n = 12
#
# Tried with, on each device:
#   mesh tp=8
#     x     float32[40]
#     axis  "tp"
#   mesh dp=4,tp=4
#     x     float32[7, 6]
#     axis  "tp"
#   mesh dp=2,tp=3
#     x     int32[4, 5, 2]
#     axis  "dp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Num


def recursive_doubling_all_reduce(x: Num[Array, "..."], *, axis: str) -> Num[Array, "..."]:
    """Sums x on every device: partners at distance 1, 2, 4 and so on exchange and add.

    Math: y = sum_j x_j
    Source: Thakur, Rabenseifner and Gropp 2005, section 4 (reduce and allreduce)

    Raises:
        ValueError: the size of the axis is not a power of two.
    """
    raise NotImplementedError("return on every device the sum of x over `axis`, in log2 n permutes")
