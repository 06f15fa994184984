"""Exercise gather (lesson 02): every device's array, on the root only.

Your task: return [n, ...] in device order on the root, and zeros of that shape elsewhere.

Save it while `jaxpar` runs, or check it with `jaxpar check gather`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   gradient      1  the gradient with respect to x
#   communication 3  no all-reduce; no device receives more than n-1 times x
#
# Tried with, on each device:
#   mesh tp=8
#     x     float32[60]
#     axis  "tp"
#     root  5
#   mesh dp=4,tp=2
#     x     float32[4, 3, 4]
#     axis  "dp"
#     root  0
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Shaped


def gather(x: Shaped[Array, "..."], *, axis: str, root: int) -> Shaped[Array, "n ..."]:
    """Gathers every device's x on the root, in device order; the other devices return zeros.

    Math: y[j] = x_j on the root, 0 elsewhere
    Source: MPI 4.1, section 6.5
    """
    raise NotImplementedError(
        "return [n, ...] in device order on the root, and zeros of that shape elsewhere"
    )
