"""Exercise quantize_rows (lesson 22): a matrix in 8 bits, whose rows are split.

Your task: return this device's rows in 8 bits, and a scale for each column of all devices.

Save it while `jaxpar` runs, or check it with `jaxpar check quantize_rows`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        7  every device returns the right result
#   communication 3  one all-reduce of a number for each column
#
# Tried with, on each device:
#   mesh tp=8
#     w_shard  float32[24, 512]
#     axis     "tp"
#   mesh dp=2,tp=3
#     w_shard  float32[30, 90]
#     axis     "tp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Float32, Int8


def quantize_rows(
    w_shard: Float[Array, "rows cols"], *, axis: str
) -> tuple[Int8[Array, "rows cols"], Float32[Array, " cols"]]:
    """Rounds this device's rows of a matrix to 8-bit integers, with a scale for each whole column.

    The rows of the matrix are split over the devices, and a column has one scale on all of them, so
    that products with different rows can be added before they are scaled. The largest magnitude of
    a column, on whichever device it is, becomes 127. Each number is rounded to the nearest multiple
    of the scale. The codes of a column of zeros are 0, and its scale is 0. w may have any float
    dtype; the largest magnitudes are sent in that dtype, and the scales are float32.

    Math: scale_k = max_i |w_ik| / 127 over the rows i of all devices;
        code_ik = round(w_ik / scale_k)
    Source: Dettmers et al. 2022 (LLM.int8()), section 3.1; Shoeybi et al. 2019 (Megatron-LM),
        section 3
    """
    raise NotImplementedError(
        "return this device's rows in 8 bits, and a scale for each column of all devices"
    )
