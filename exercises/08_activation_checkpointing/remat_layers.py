"""Exercise remat_layers (lesson 08): keep only the inputs of segments.

Your task: call layer after layer, and keep only the inputs of `segments` segments for the
gradient.

Save it while `jaxpar` runs, or check it with `jaxpar check remat_layers`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        3  every device returns the right result
#   gradient      1  the gradient with respect to params, x
#   communication 3  nothing is sent
#   memory        1  with the gradient, the inputs of all segments, and what the layers of one
#                    keep: at most 1.2 times the library's bytes of intermediate results
#   flops         1  with the gradient, one extra forward pass at most; a second, if intermediate
#                    results take at most 0.9 times the library's bytes
#   errors        1  ValueError where segments does not divide the layers; more segments than
#                    layers
#
# Tried with, on each device:
#   mesh dp=2
#     layer_fn  as `residual_mlp`, in steps so small that hundreds of random layers do not run
#               away
#     params    {up: float32[512, 4, 64], down: float32[512, 64, 4]}
#     x         float32[128, 4]
#     segments  128
#   mesh fsdp=3
#     layer_fn  one square matrix and a bias, then a sine, added to x [b, d] in small steps
#     params    (float32[192, 8, 8], float32[192, 8])
#     x         float32[48, 8]
#     segments  24
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


def remat_layers(
    layer_fn: Callable[[Any, Array], Array],
    params: PyTree[Array],
    x: Float[Array, "..."],
    *,
    segments: int,
) -> Float[Array, "..."]:
    """Applies layer after layer; for the backward pass, only the inputs of segments are kept.

    `layer_fn(layer_params, x)` is the next x, which has the same shape. `params` are stacked: each
    leaf is [l, ...]. Before the backward pass of a segment, the segment is computed a second time.
    At that moment the residuals of its layers are held, and a copy of their parameters and of their
    gradients.

    Math: x_(i+1) = layer_fn(params[i], x_i)
    Source: Chen et al. 2016 (Training Deep Nets with Sublinear Memory Cost), section 4

    Raises:
        ValueError: `segments` does not divide the number of layers.
    """
    raise NotImplementedError(
        "call layer after layer, and keep only the inputs of `segments` segments for the gradient"
    )
