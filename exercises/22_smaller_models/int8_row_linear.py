"""Exercise int8_row_linear (lesson 22): a product with codes, slice by slice.

Your task: return x times the matrix, summed over `axis`; make floats of `width` columns at a time.

Save it while `jaxpar` runs, or check it with `jaxpar check int8_row_linear`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   communication 3  one all-reduce of the result, after the last columns
#   memory        1  the result, and `width` columns as floats: at most 1.5 times the library's
#                    bytes of intermediate results
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where 2,048 columns, width = 300; width = 0
#
# Tried with, on each device:
#   mesh tp=4
#     x       float32[64, 512]
#     codes   int8[512, 2048]
#     scales  float32[2048]
#     axis    "tp"
#     width   256
#   mesh dp=2,tp=2
#     x       float32[16, 256]
#     codes   int8[256, 512]
#     scales  float32[512]
#     axis    "tp"
#     width   32
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Float32, Int8


def int8_row_linear(
    x: Float[Array, "t d"],
    codes: Int8[Array, "d f"],
    scales: Float32[Array, " f"],
    *,
    axis: str,
    width: int,
) -> Float[Array, "t f"]:
    """Multiplies this device's columns of x by its rows of an 8-bit matrix, and sums over devices.

    `codes` and `scales` are those of `quantize_rows`. The matrix is in 8 bits because memory is
    short, so it is never held whole as floats: `width` columns are converted to the dtype of x at a
    time. A column has the same scale on all devices, so that the sum is scaled, once, and no
    matrix. Products, sums and the result have the dtype of x. The result is equal on all devices.

    Math: y_tk = scale_k * sum_j (x_j @ code_j)_tk
    Source: Dettmers et al. 2022 (LLM.int8()), section 3.1; Shoeybi et al. 2019 (Megatron-LM),
        section 3

    Raises:
        ValueError: `width` does not divide the columns.
    """
    raise NotImplementedError(
        "return x times the matrix, summed over `axis`; make floats of `width` columns at a time"
    )
