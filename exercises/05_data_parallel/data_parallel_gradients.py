"""Exercise data_parallel_gradients (lesson 05): gradients of a split batch.

Your task: return the loss and its gradient with respect to params, means over `axis`.

Save it while `jaxpar` runs, or check it with `jaxpar check data_parallel_gradients`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   communication 3  one all-reduce's bytes of the gradients, plus scalars
#   flops         1  each device computes with its own examples only: at most 1.6 times the
#                    library's flops in matrix products
#
# Tried with, on each device:
#   mesh dp=8
#     loss_fn  the error of a network with one hidden layer and one output: inputs [b, d], targets
#              [b]
#     params   {w_in: float32[6, 16], bias: float32[16], w_out: float32[16]}
#     batch    {inputs: float32[20, 6], targets: float32[20]}
#     axis     "dp"
#   mesh fsdp=3,tp=2
#     loss_fn  the error of a network given as a list of layers: inputs [b, d], targets [b, f]
#     params   [{w: float32[5, 10], scale: float32[10]}, {w: float32[10, 2]}]
#     batch    (float32[16, 5], float32[16, 2])
#     axis     "fsdp"
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


def data_parallel_gradients(
    loss_fn: Callable[[Any, Any], Array], params: PyTree[Array], batch: PyTree[Array], *, axis: str
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The loss and its gradient, both averaged over the devices, on every device.

    `loss_fn(params, batch)` is the mean loss of the examples in `batch`, which is this device's
    shard of all examples. `params` are equal on all devices of the axis, and typed so. Each
    gradient has the dtype of its parameter.

    Math: loss = (sum_j loss_fn(params, batch_j)) / n; gradient = d loss / d params
    Source: Li et al. 2020 (PyTorch Distributed), section 3.2
    """
    raise NotImplementedError(
        "return the loss and its gradient with respect to params, means over `axis`"
    )
