"""Exercise vocab_parallel_embedding (lesson 12): a table whose rows are split.

Your task: return the row of each id on every device, zeros for an id that no device has.

Save it while `jaxpar` runs, or check it with `jaxpar check vocab_parallel_embedding`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   gradient      1  the gradient with respect to table
#   communication 3  one all-reduce of the result, backward nothing
#   memory        1  never as much as the whole table: at most 2.5 times the library's bytes of
#                    intermediate results, forward and backward
#
# Tried with, on each device:
#   mesh tp=8
#     ids    int32[2, 12]
#     table  float32[16, 24]
#     axis   "tp"
#   mesh dp=2,tpx=3
#     ids    int32[150]
#     table  bfloat16[34, 32]
#     axis   "tpx"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def vocab_parallel_embedding(
    ids: Int[Array, "*b"], table: Float[Array, "v_tp d"], *, axis: str
) -> Float[Array, "*b d"]:
    """Looks up each token's row in a table whose rows are split over the devices of the axis.

    `ids` are equal on all devices, and so is the result. `table` is this device's v rows: device i
    has those of the ids i*v to (i+1)*v - 1. An id that no device has, such as a negative one, gets
    zeros.

    Math: y = [table_1, ..., table_n][ids]
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (input embedding)
    """
    raise NotImplementedError(
        "return the row of each id on every device, zeros for an id that no device has"
    )
