"""Exercise global_norm_of_shards (lesson 09): one norm over leaves that are sharded.

Your task: return the norm of all leaves together, where each leaf is split over `axis`.

Save it while `jaxpar` runs, or check it with `jaxpar check global_norm_of_shards`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        7  every device returns the right result
#   communication 3  one all-reduce of one number
#
# Tried with, on each device:
#   mesh dp=8
#     shards  {embedding: float32[2, 5], layers: [{w: float32[2, 3], bias: float32[3]}, {w:
#             float32[3, 3], bias: float32[3]}, {w: float32[4, 3], bias: float32[3]}, {w:
#             float32[5, 3], bias: float32[3]}, {w: float32[6, 3], bias: float32[3]}]}
#     axis    "dp"
#   mesh fsdp=3,tp=2
#     shards  [float32[1, 4, 3], float32[2, 4, 3], float32[3, 4, 3], float32[4, 4, 3], float32[5,
#             4, 3], float32[6, 4, 3], float32[7, 4, 3], float32[8, 4, 3], float32[9, 4, 3],
#             float32[10, 4, 3]]
#     axis    "fsdp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PyTree


def global_norm_of_shards(shards: PyTree[Float[Array, "..."]], *, axis: str) -> Float[Array, ""]:
    """The norm of all leaves together, of which each device of the axis holds its shards.

    It is a float32, and so are the squares and their sum, whatever the dtype of the leaves.

    Math: y = sqrt(sum_j sum shards_j**2), over all leaves
    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1; Shoeybi et al. 2019, section 3
    """
    raise NotImplementedError(
        "return the norm of all leaves together, where each leaf is split over `axis`"
    )
