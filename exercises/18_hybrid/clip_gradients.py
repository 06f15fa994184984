"""Exercise clip_gradients (lesson 18): clip by one norm of leaves on different axes.

Your task: scale the gradients down to `max_norm` where their norm exceeds it, and return the norm.

Save it while `jaxpar` runs, or check it with `jaxpar check clip_gradients`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        7  every device returns the right result
#   communication 3  numbers only: for each gradient at most one to every other device
#
# Tried with, on each device:
#   mesh pp=2,fsdp=2,tp=2
#     grads     {layers: {up: float32[2, 4, 6], gain: float32[2, 24]}, table: float32[16, 8],
#               head: float32[8, 8], gain: float32[8]}
#     max_norm  25.0
#   mesh dp=2,ep=4
#     grads     [float32[2, 6, 9], float32[10, 7], float32[10], float32[8, 10]]
#     max_norm  100.0
#   mesh fsdp=3,tp=2
#     grads     (float32[3, 5], float32[5])
#     max_norm  1.0
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PyTree


def clip_gradients(
    grads: PyTree[Float[Array, "..."]], *, max_norm: float
) -> tuple[PyTree[Float[Array, "..."]], Float[Array, ""]]:
    """Scales all gradients down by one factor if their global norm exceeds `max_norm`.

    Returns the gradients and the norm. The global norm is that of all leaves together, before they
    are scaled. The axes that split a leaf are those in its type (`jaxpar.mesh.varying_axes`), and
    over all other axes the devices hold copies of it. So each number of a leaf counts once, however
    many devices hold it. The squares, their sum and the norm are float32, or float64 if a leaf is,
    and each leaf keeps its dtype.

    Math: y = grads * max_norm/max(max_norm, norm), norm
    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1
    """
    raise NotImplementedError(
        "scale the gradients down to `max_norm` where their norm exceeds it, and return the norm"
    )
