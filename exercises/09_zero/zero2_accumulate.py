"""Exercise zero2_accumulate (lesson 09): gradients scattered as they accumulate.

Your task: return this device's rows of the mean gradient of m microbatches, over `axis`.

Save it while `jaxpar` runs, or check it with `jaxpar check zero2_accumulate`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   sharding      1  each device returns its own part only
#   communication 3  a reduce-scatter of the gradients in each microbatch, and nothing else
#   memory        1  one microbatch's activations, one gradient, and this device's rows of their
#                    sum: at most 1.3 times the library's bytes of intermediate results
#   flops         1  each device computes its own examples, and once: at most 1.5 times the
#                    library's flops of matrix products, so that activations may be computed again
#
# Tried with, on each device:
#   mesh dp=8
#     loss_fn       the error of a network with one hidden layer and one output: inputs [b, d],
#                   targets [b]
#     params        {w_in: float32[64, 64], bias: float32[64], w_out: float32[64]}
#     microbatches  {inputs: float32[8, 4, 64], targets: float32[8, 4]}
#     axis          "dp"
#   mesh fsdp=3,tp=2
#     loss_fn       the error of a network given as a list of layers: inputs [b, d], targets [b,
#                   f]
#     params        [{w: float32[96, 48], scale: float32[48]}, {w: float32[48, 4]}]
#     microbatches  (float32[6, 4, 96], float32[6, 4, 4])
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
from jaxtyping import PyTree


def zero2_accumulate(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    microbatches: PyTree[Array],
    *,
    axis: str,
) -> PyTree[Array]:
    """This device's shard of the mean gradient of m microbatches; the full sum is never held.

    `loss_fn(params, batch)` is the mean loss of the examples in `batch`. `microbatches` is this
    device's shard of all examples, a pytree whose leaves are [m, ...]. `params` are equal on all
    devices of the axis, and typed so. Device i returns the i-th of n equal parts of each leaf of
    the gradient, split along the first dim that n divides (in an exercise dim 0). Each
    gradient is sent, and returned, in the dtype of its parameter.

    Math: y = g[i] on device i, where g is the gradient with respect to params of
        (sum_j sum_k loss_fn(params, microbatches_j[k])) / (n*m)
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.2
    """
    raise NotImplementedError(
        "return this device's rows of the mean gradient of m microbatches, over `axis`"
    )
