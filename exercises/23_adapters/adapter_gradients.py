"""Exercise adapter_gradients (lesson 23): gradients of adapters alone.

Your task: return the loss and its gradient with respect to the adapters, means over `axis`.

Save it while `jaxpar` runs, or check it with `jaxpar check adapter_gradients`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        6  every device returns the right result
#   communication 3  one all-reduce's bytes of the adapters' gradients, plus scalars
#   flops         1  no gradient of the base: at most 1.1 times the library's flops in matrix
#                    products
#
# Tried with, on each device:
#   mesh dp=8
#     loss_fn   the error of square matrices with adapters: inputs [b, d], targets [b, d]
#     base      [float32[24, 24], float32[24, 24], float32[24, 24], float32[24, 24]]
#     adapters  [{a: float32[24, 4], b: float32[4, 24]}, {a: float32[24, 4], b: float32[4, 24]},
#               {a: float32[24, 4], b: float32[4, 24]}, {a: float32[24, 4], b: float32[4, 24]}]
#     batch     {inputs: float32[16, 24], targets: float32[16, 24]}
#     axis      "dp"
#   mesh fsdp=3,tp=2
#     loss_fn   the error of square matrices with adapters: inputs [b, d], targets [b, d]
#     base      [float32[30, 30], float32[30, 30]]
#     adapters  [{a: float32[30, 5], b: float32[5, 30]}, {a: float32[30, 5], b: float32[5, 30]}]
#     batch     {inputs: float32[20, 30], targets: float32[20, 30]}
#     axis      "fsdp"
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


def adapter_gradients(
    loss_fn: Callable[[Any, Any, Any], Array],
    base: PyTree[Array],
    adapters: PyTree[Array],
    batch: PyTree[Array],
    *,
    axis: str,
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The loss and its gradient with respect to the adapters, both averaged over the devices.

    `loss_fn(base, adapters, batch)` is the mean loss of the examples in `batch`, which is this
    device's shard of all examples. `base` and `adapters` are equal on all devices of the axis, and
    typed so. `base` is frozen: no gradient with respect to it is computed or sent. Each gradient
    has the dtype of its adapter.

    Math: loss = (sum_j loss_fn(base, adapters, batch_j)) / n; gradient = d loss / d adapters
    Source: Hu et al. 2021 (LoRA), section 4.2; Li et al. 2020 (PyTorch Distributed), section 3.2
    """
    raise NotImplementedError(
        "return the loss and its gradient with respect to the adapters, means over `axis`"
    )
