"""Exercise lora_row_linear (lesson 23): a split matrix and its adapter, in one all-reduce.

Your task: return x @ w + scale * (x @ a) @ b; this device has its columns of x, rows of w and of
a.

Save it while `jaxpar` runs, or check it with `jaxpar check lora_row_linear`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   gradient      1  the gradient with respect to x, a, b
#   communication 3  one all-reduce of the result's size forward; backward one of b's size
#   flops         1  no product for a gradient of the frozen matrix: at most 1.1 times the
#                    library's flops, forward and with the gradient
#
# Tried with, on each device:
#   mesh tp=8
#     x      float32[128, 32]
#     w      float32[32, 512]
#     a      float32[32, 8]
#     b      float32[8, 512]
#     axis   "tp"
#     scale  2.0
#   mesh dp=2,tp=2
#     x      float32[3, 8, 36]
#     w      float32[36, 40]
#     a      float32[36, 4]
#     b      float32[4, 40]
#     axis   "tp"
#     scale  0.25
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def lora_row_linear(
    x: Float[Array, "*b f_tp"],
    w: Float[Array, "f_tp d"],
    a: Float[Array, "f_tp r"],
    b: Float[Array, "r d"],
    *,
    axis: str,
    scale: float,
) -> Float[Array, "*b d"]:
    """A product with a matrix that is split by rows, with an adapter: one all-reduce for both.

    This device has its columns of x, and the same rows of w and a. b is equal on all devices, and
    typed so, and so is the result.

    Math: y = sum_j (x_j @ w_j + scale * (x_j @ a_j) @ b)
    Source: Hu et al. 2021 (LoRA), section 4.1; Shoeybi et al. 2019 (Megatron-LM), section 3
    """
    raise NotImplementedError(
        "return x @ w + scale * (x @ a) @ b; this device has its columns of x, rows of w and of a"
    )
