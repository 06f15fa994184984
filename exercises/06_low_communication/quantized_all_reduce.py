"""Exercise quantized_all_reduce (lesson 06): a mean in 8 or 4 bits, which loses nothing for good.

Your task: return the mean of x over `axis`, sent in `bits` bits, and what rounding lost each time.

Save it while `jaxpar` runs, or check it with `jaxpar check quantized_all_reduce`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   communication 3  an all-to-all and an all-gather of integers of `bits` bits and of the scales
#                    of their blocks
#   errors        1  ValueError where bits = 6; 8,192 / 60; 8,192 / (8 * 2,048)
#
# Tried with, on each device:
#   mesh dp=8
#     x             the numbers of blocks [*, block] one after the other, as gradients are
#                   flattened, made from float32[128, 64]
#     error         float32[8192]
#     second_error  float32[1024]
#     axis          "dp"
#     block         64
#     bits          8
#   mesh dp=4,tp=2
#     x             the numbers of blocks [*, block] one after the other, as gradients are
#                   flattened, made from float32[192, 32]
#     error         float32[6144]
#     second_error  float32[1536]
#     axis          "dp"
#     block         32
#     bits          8
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh, jaxpar.quantize.quantize_blocks,
#                jaxpar.quantize.dequantize_blocks and, of Python's own, collections, dataclasses,
#                functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Float32


def quantized_all_reduce(
    x: Float[Array, " size"],
    error: Float32[Array, " size"],
    second_error: Float32[Array, " part"],
    *,
    axis: str,
    block: int,
    bits: int,
) -> tuple[Float32[Array, " size"], Float32[Array, " size"], Float32[Array, " part"]]:
    """The mean of x over the devices, sent as integers of 8 or 4 bits with error feedback.

    First, device j adds its `error` to x, rounds the sum, and sends the i-th of n equal parts of it
    to device i, which averages what arrives. Then device i adds its `second_error` to this mean,
    rounds the sum, and sends it to all. What these two roundings lose are the new errors. Errors
    are 0 before the first step, and each device has its own. Integers travel with the scales of
    their blocks: `quantize_blocks(x, block=block, bits=bits)` makes both, and
    `dequantize_blocks(codes, scales)` turns them into numbers again. Each number is rounded to one
    of the two nearest multiples of its block's scale: the library takes the nearer one, but one
    that is chosen at random is right as well. Returns the mean, the new `error` and the new
    `second_error`, all in float32. x may have any float dtype.

    Math: error_j' = (x_j + error_j) - sent_j; mean_i = (sum_j sent_j[i])/n;
        second_i' = (mean_i + second_i) - sent_i; y = [sent_1, ..., sent_n]
    Source: Alistarh et al. 2017 (QSGD); Tang et al. 2019 (DoubleSqueeze), algorithm 1

    Raises:
        ValueError: n equal parts of full blocks do not make up x, or `bits` is neither 8 nor 4.
    """
    raise NotImplementedError(
        "return the mean of x over `axis`, sent in `bits` bits, and what rounding lost each time"
    )
