"""Exercise accumulate_gradients (lesson 05): many microbatches, one all-reduce.

Your task: return the mean loss and gradient over m microbatches, one at a time, and over `axis`.

Save it while `jaxpar` runs, or check it with `jaxpar check accumulate_gradients`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   communication 3  one all-reduce's bytes of the gradients, however many microbatches, plus
#                    scalars
#   memory        1  one microbatch's activations, one gradient, one accumulator: at most 2.5
#                    times the library's bytes of intermediate results
#   flops         1  each device computes with its own examples only: at most 1.6 times the
#                    library's flops in matrix products
#
# Tried with, on each device:
#   mesh dp=8
#     loss_fn       the error of a network with one hidden layer and one output: inputs [b, d],
#                   targets [b]
#     params        {w_in: float32[8, 64], bias: float32[64], w_out: float32[64]}
#     microbatches  {inputs: float32[10, 32, 8], targets: float32[10, 32]}
#     axis          "dp"
#   mesh fsdp=2,tp=3
#     loss_fn       the error of a network given as a list of layers: inputs [b, d], targets [b,
#                   f]
#     params        [{w: float32[24, 32], scale: float32[32]}, {w: float32[32, 8]}]
#     microbatches  (float32[12, 2, 24], float32[12, 2, 8])
#     axis          "fsdp"
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PyTree


def accumulate_gradients(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    microbatches: PyTree[Array],
    *,
    axis: str,
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The mean loss and gradient over the devices and over m microbatches, computed one by one.

    `loss_fn(params, batch)` is the mean loss of the examples in `batch`. `microbatches` is this
    device's shard of all examples, a pytree whose leaves are [m, ...]. `params` are equal on all
    devices of the axis, and typed so. Each gradient has the dtype of its parameter.

    Math: loss = (sum_j sum_i loss_fn(params, microbatches_j[i])) / (n*m); gradient = its derivative
    Source: Li et al. 2020 (PyTorch Distributed), section 3.2.4
    """
    raise NotImplementedError(
        "return the mean loss and gradient over m microbatches, one at a time, and over `axis`"
    )
