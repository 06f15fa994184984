"""Exercise nf4_linear (lesson 23): a product with 4-bit weights, whole at no time.

Your task: return x times the matrix of NF4 codes, of which few columns at a time are numbers.

Save it while `jaxpar` runs, or check it with `jaxpar check nf4_linear`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        3  every device returns the right result
#   gradient      1  the gradient with respect to x, largest
#   communication 3  nothing is sent forward; backward the gradient of x is summed once over the
#                    devices that have other columns
#   memory        1  the numbers of one block of each row, forward and backward: at most 2.5 times
#                    the library's bytes of intermediate results
#   flops         1  one product forward and one for the gradient of x: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#   errors        1  ValueError where there are half as many blocks; block is odd
#
# Tried with, on each device:
#   mesh dp=2
#     x        float32[8, 256]
#     packed   uint8[256, 256]
#     largest  float32[256, 8]
#     block    64
#   mesh dp=2,tp=2
#     x        float32[2, 3, 192]
#     packed   uint8[192, 192]
#     largest  float32[192, 12]
#     block    32
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh, jaxpar.quantize.nf4_dequantize
#                and, of Python's own, collections, dataclasses, functools, itertools, math,
#                operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, UInt8


def nf4_linear(
    x: Float[Array, "*b d"],
    packed: UInt8[Array, "d half"],
    largest: Float[Array, "d blocks"],
    *,
    block: int,
) -> Float[Array, "*b f"]:
    """Multiplies x by a frozen matrix of 4-bit codes, of which few columns at a time are numbers.

    `nf4_quantize(w, block=block)` made `packed` and `largest` of the matrix w, [d, f]. The columns
    of one block after the other are turned into numbers, used, and dropped, and once more in the
    backward pass. x has a gradient, and the matrix has none: that of `largest` is 0. The result has
    the dtype of x.

    Math: y = x @ nf4_dequantize(packed, largest)
    Source: Dettmers et al. 2023 (QLoRA), section 3, equations 5 and 6

    Raises:
        ValueError: `packed`, `largest` and `block` do not fit one another, or `block` is odd.
    """
    raise NotImplementedError(
        "return x times the matrix of NF4 codes, of which few columns at a time are numbers"
    )
