"""Exercise fsdp_lora_apply (lesson 23): a frozen base, gathered and never reduced.

Your task: return x after all layers; gather each layer's frozen base when it is used, and
backward.

Save it while `jaxpar` runs, or check it with `jaxpar check fsdp_lora_apply`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to base_shards, adapters, x
#   communication 3  each layer's base gathered once forward and once backward, as it is stored;
#                    one all-reduce of the adapters' gradients backward, and nothing for the
#                    base's
#   memory        1  one layer's base and every layer's input: at most twice the library's bytes
#                    of intermediate results, forward and backward
#   flops         1  each device does its part of the matrix products: at most 1.1 times the
#                    library's flops; a gradient may compute the forward pass again
#
# Tried with, on each device:
#   mesh fsdp=8
#     layer_fn     two matrices, w [d, f] and down [f, d], with one adapter that both use; x [b,
#                  d]
#     base_shards  {w: float32[4, 4, 64], down: float32[4, 8, 32]}
#     adapters     {a: float32[4, 32, 4], b: float32[4, 4, 64]}
#     x            float32[4, 32]
#     axis         "fsdp"
#   mesh dp=4,tp=2
#     layer_fn     one square matrix of NF4 codes, with an adapter; x [..., d]
#     base_shards  (uint8[8, 16, 32], float32[8, 16, 2])
#     adapters     (float32[8, 64, 2], float32[8, 2, 64])
#     x            float32[5, 64]
#     axis         "dp"
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


def fsdp_lora_apply(
    layer_fn: Callable[[Any, Any, Array], Array],
    base_shards: PyTree[Array],
    adapters: PyTree[Array],
    x: Float[Array, "..."],
    *,
    axis: str,
) -> Float[Array, "..."]:
    """Applies layer after layer; each gathers its frozen base before its use, backward as well.

    `layer_fn(base, adapter, x) -> x` takes one layer's whole base and its adapter. Both are
    stacked: a leaf of `base_shards` is [l, s, ...], and holds this device's part of dim s, in the
    order of the devices; a leaf of `adapters` is [l, ...], and equal on all devices. Leaves of the
    base may be codes of few bits, and are gathered as they are. x is this device's shard of the
    batch, and so is the result. The gradient with respect to the base is 0, and nothing is sent for
    it. That of the adapters is summed over the devices, once for all layers.

    Math: x_(i+1) = layer_fn(base[i], adapters[i], x_i); base[i] = [shards_1[i], ..., shards_n[i]]
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3; Hu et al. 2021 (LoRA), section 4.2
    """
    raise NotImplementedError(
        "return x after all layers; gather each layer's frozen base when it is used, and backward"
    )
