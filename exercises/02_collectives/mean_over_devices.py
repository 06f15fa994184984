"""Exercise mean_over_devices (lesson 02): a mean by one all-reduce.

Your task: return the mean of x over the devices of `axis`, on every device.

Save it while `jaxpar` runs, or check it with `jaxpar check mean_over_devices`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   gradient      1  the gradient with respect to x
#   communication 3  the bytes of one all-reduce of x, padded to n chunks: at most 2(n-1)/n of it
#   memory        1  at most 3 times the library's bytes of intermediate results
#
# Tried with, on each device:
#   mesh tp=8
#     x     float32[1200]
#     axis  "tp"
#   mesh dp=3,tp=2
#     x     float32[6, 5, 2]
#     axis  "dp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def mean_over_devices(x: Float[Array, "..."], *, axis: str) -> Float[Array, "..."]:
    """Averages x over the devices, on every device, in the dtype of x.

    Math: y = (sum_j x_j) / n
    Source: MPI 4.1, section 6.9
    """
    raise NotImplementedError("return the mean of x over the devices of `axis`, on every device")
