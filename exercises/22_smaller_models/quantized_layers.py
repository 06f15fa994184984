"""Exercise quantized_layers (lesson 22): layers in 8 bits, whole only while they are used.

Your task: call layer after layer, and make floats of a layer's matrices only while it is computed.

Save it while `jaxpar` runs, or check it with `jaxpar check quantized_layers`.
"""

# What is judged (10 points; values must be right to earn the rest)
#   values        3  every device returns the right result
#   gradient      1  the gradient with respect to x
#   sharding      1  each device returns its own part only
#   communication 3  nothing is sent
#   memory        1  the inputs of all layers, and the floats of one: at most 1.5 times the
#                    library's bytes of intermediate results, with the gradient too
#   flops         1  with the gradient, each layer is computed forward twice at most
#
# Tried with, on each device:
#   mesh dp=2
#     layer_fn  two matrices of about 60 with tanh between, added to x [b, d] in small steps
#     codes     {up: int8[8, 128, 256], down: int8[8, 256, 128]}
#     scales    {up: float32[8, 256], down: float32[8, 128]}
#     x         float32[4, 128]
#   mesh dp=4
#     layer_fn  two matrices of about 60 with tanh between, added to x [b, d] in small steps
#     codes     {up: int8[16, 64, 96], down: int8[16, 96, 64]}
#     scales    {up: float32[16, 96], down: float32[16, 64]}
#     x         float32[2, 64]
# and with others, drawn for each check.
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Float32, Int8, PyTree


def quantized_layers(
    layer_fn: Callable[[Any, Array], Array],
    codes: PyTree[Int8[Array, "l _ _"]],
    scales: PyTree[Float32[Array, "l _"]],
    x: Float[Array, "..."],
) -> Float[Array, "..."]:
    """Applies layers of 8-bit matrices, each of which is floats only while its layer is computed.

    `layer_fn(params, x) -> x` takes the matrices of one layer as floats. `codes` is the same pytree
    with the codes of all layers, and `scales` has a scale for each column of each matrix. A matrix
    is codes * scales, in the dtype of x. In the backward pass it is made once more, so that there,
    too, no more than one layer is floats. The gradient with respect to x is the exact one of these
    layers; codes have none.

    Math: x_(i+1) = layer_fn(codes[i] * scales[i], x_i)
    Source: Dettmers et al. 2023 (QLoRA), section 3
    """
    raise NotImplementedError(
        "call layer after layer, and make floats of a layer's matrices only while it is computed"
    )
