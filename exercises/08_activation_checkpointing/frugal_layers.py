"""Exercise frugal_layers (lesson 08): an open challenge: the least memory.

Your task: call layer after layer, and let the gradient take little memory.

Save it while `jaxpar` runs, or check it with `jaxpar check frugal_layers`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        4  every device returns the right result
#   gradient      1  the gradient with respect to params, x
#   communication 3  nothing is sent
#   memory        1  with the gradient, at most 1.5 times the library's bytes of intermediate
#                    results; it keeps the inputs of sqrt(l) segments, and computes each layer
#                    twice more
#   flops         1  with the gradient, at most 1.45 times the library's: each layer is computed
#                    once, and at most four times more
#
# Tried with, on each device:
#   mesh fsdp=3
#     layer_fn  one square matrix and a bias, then a sine, added to x [b, d] in small steps
#     params    (float32[512, 8, 8], float32[512, 8])
#     x         float32[512, 8]
#   mesh dp=2
#     layer_fn  as `residual_mlp`, in steps so small that hundreds of random layers do not run
#               away
#     params    {up: float32[96, 4, 64], down: float32[96, 64, 4]}
#     x         float32[512, 4]
# and with others, drawn for each check.
#
# Open challenge  hold the fewest bytes of intermediate results, forward and backward, on mesh
#                 fsdp=3, as above. Every right answer earns all points. Its number is shown
#                 beside the library's, and the lowest that you have reached is kept.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PyTree


def frugal_layers(
    layer_fn: Callable[[Any, Array], Array], params: PyTree[Array], x: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Applies layer after layer; of l layers, only the inputs of about sqrt(l) segments are kept.

    `layer_fn(layer_params, x)` is the next x, which has the same shape. `params` are stacked: each
    leaf is [l, ...]. There are sqrt(l) segments, or the next number that divides l. Before the
    backward pass of a segment, the inputs of its layers are computed again, and each layer once
    more before its own.

    Math: x_(i+1) = layer_fn(params[i], x_i)
    Source: Chen et al. 2016 (Training Deep Nets with Sublinear Memory Cost), section 4
    """
    raise NotImplementedError("call layer after layer, and let the gradient take little memory")
