"""Exercise masked_gradients (lesson 18): the mean over all real tokens, not a mean of means.

Your task: return the mean loss of the real tokens of all devices and microbatches, and gradients.

Save it while `jaxpar` runs, or check it with `jaxpar check masked_gradients`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        5  every device returns the right result
#   communication 3  one all-reduce's bytes of the gradients, a total and a count over all `axes`
#                    together, however many microbatches
#   memory        1  one microbatch's activations, one gradient, one accumulator: at most 1.5
#                    times the library's bytes of intermediate results
#   flops         1  each device computes with its own examples only: at most 1.6 times the
#                    library's flops in matrix products
#
# Tried with, on each device:
#   mesh dp=2,cp=4
#     loss_fn  the cross-entropy of each token, plus a penalty: [b, t]; in float32 at least
#     params   {table: float32[16, 8], w_in: float32[8, 32], w_out: float32[32, 16]}
#     batches  {tokens: int32[3, 8, 8], targets: int32[3, 8, 8], penalties: float32[3, 8, 8]}
#     masks    bool[3, 8, 8]
#     axes     ("dp", "cp")
#   mesh fsdp=3,tp=2
#     loss_fn  the squared error of each token, plus a penalty: [b, t]
#     params   [float32[6, 16], float32[16]]
#     batches  (float32[2, 2, 5, 6], float32[2, 2, 5], float32[2, 2, 5])
#     masks    bool[2, 2, 5]
#     axes     ("fsdp",)
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, PyTree


def masked_gradients(
    loss_fn: Callable[[Any, Any], Float[Array, "..."]],
    params: PyTree[Array],
    batches: PyTree[Array],
    masks: Bool[Array, "m ..."],
    *,
    axes: tuple[str, ...],
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The mean loss of all real tokens, of m microbatches and of all devices, and its gradient.

    `loss_fn(params, batch)` returns a loss for each token of a microbatch. The mask of the
    microbatch has the same shape, and says which tokens are real; the losses of the others may be
    anything, even NaN, but their derivatives are finite. `batches` and `masks` are this device's,
    with leading dim m, and differ over `axes`. `params` are equal on all devices, and typed so.
    Microbatches and devices have different numbers of real tokens, or none, but in all there is at
    least one. The results are equal on all devices; the loss is float32, or float64 if the losses
    are, and each gradient has the dtype of its parameter.

    Math: loss = (sum_j sum_k sum of the real losses) / (sum_j sum_k their number); its gradient
    Source: Narayanan et al. 2021 (Megatron-LM), section 2; Hugging Face transformers, issue 34242
    """
    raise NotImplementedError(
        "return the mean loss of the real tokens of all devices and microbatches, and gradients"
    )
