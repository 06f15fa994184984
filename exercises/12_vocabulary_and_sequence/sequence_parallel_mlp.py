"""Exercise sequence_parallel_mlp (lesson 12): positions split between the blocks.

Your task: return the MLP's result for this device's positions; the matrices stay split.

Save it while `jaxpar` runs, or check it with `jaxpar check sequence_parallel_mlp`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to x, w_up, w_down
#   sharding      1  each device returns its own part only
#   communication 3  an all-gather of x and a reduce-scatter of the result, in each direction;
#                    backward x may be gathered once more
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#
# Tried with, on each device:
#   mesh tp=4
#     x       float32[4, 8, 16]
#     w_up    float32[16, 40]
#     w_down  float32[40, 16]
#     axis    "tp"
#   mesh dp=2,tpx=3
#     x       float32[9, 2, 15]
#     w_up    float32[15, 48]
#     w_down  float32[48, 15]
#     axis    "tpx"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float


def sequence_parallel_mlp(
    x: Float[Array, "b t_tp d"],
    w_up: Float[Array, "d f_tp"],
    w_down: Float[Array, "f_tp d"],
    *,
    axis: str,
) -> Float[Array, "b t_tp d"]:
    """The MLP of GPT with tanh GELU, on positions that are split over the devices.

    x is this device's positions; device i has the i-th of n equal parts. `w_up` is this device's
    columns of the full matrix, and `w_down` is its rows. The result is the output of the full MLP
    for this device's positions. All three have the same dtype, in which positions and sums are
    sent, and which the result has.

    Math: y = sum_j (gelu(x @ w_up_j) @ w_down_j)[:, t_i] on device i, with x = [x_1, ..., x_n]
    Source: Korthikanti et al. 2022, section 4.2.2
    """
    raise NotImplementedError(
        "return the MLP's result for this device's positions; the matrices stay split"
    )
