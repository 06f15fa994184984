"""Exercise hierarchical_all_reduce (lesson 03): fast links first, slow links least.

Your task: return the sum of x over `inner` and `outer`, sending only 1/n_inner of x over `outer`.

Save it while `jaxpar` runs, or check it with `jaxpar check hierarchical_all_reduce`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   gradient      1  the gradient with respect to x
#   communication 3  over outer one all-reduce of ceil(1/n_inner of x), over inner one all-reduce
#                    of x
#
# Tried with, on each device:
#   mesh node=2,device=4
#     x      float32[7, 19]
#     inner  "device"
#     outer  "node"
#   mesh node=4,device=3
#     x      float32[71]
#     inner  "device"
#     outer  "node"
#   mesh dp=2,cp=2,tp=3
#     x      float32[5, 11, 2]
#     inner  "tp"
#     outer  "dp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Num


def hierarchical_all_reduce(x: Num[Array, "..."], *, inner: str, outer: str) -> Num[Array, "..."]:
    """Sums x over both axes, on every device; x may have any size.

    Math: y = sum_j x_j
    Source: Cho, Finkler, Kung and Hunter 2019 (BlueConnect)
    """
    raise NotImplementedError(
        "return the sum of x over `inner` and `outer`, sending only 1/n_inner of x over `outer`"
    )
