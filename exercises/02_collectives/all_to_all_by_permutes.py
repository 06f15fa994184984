"""Exercise all_to_all_by_permutes (lesson 02): a transpose across devices.

Your task: send chunk j of x to device j by lax.ppermute only; y[j] came from device j.

Save it while `jaxpar` runs, or check it with `jaxpar check all_to_all_by_permutes`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   gradient      1  the gradient with respect to x
#   communication 3  permutes only, (n-1)/n of x in all
#
# Tried with, on each device:
#   mesh dp=8
#     x     float32[8, 6]
#     axis  "dp"
#   mesh dp=2,tp=3
#     x     float32[3, 4, 2]
#     axis  "tp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Shaped


def all_to_all_by_permutes(x: Shaped[Array, "n ..."], *, axis: str) -> Shaped[Array, "n ..."]:
    """Does what `all_to_all` does, in n - 1 steps: in step k, device i sends to device i + k.

    Math: y[j] = x_j[i] on device i
    Source: Thakur, Rabenseifner and Gropp 2005, section 4 (alltoall)
    """
    raise NotImplementedError(
        "send chunk j of x to device j by lax.ppermute only; y[j] came from device j"
    )
