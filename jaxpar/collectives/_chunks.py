"""An array of any size as n equal chunks, and back."""

import math

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped


def split(x: Shaped[Array, "..."], n: int) -> Shaped[Array, "n c"]:
    """The elements of x in n chunks of equal size, the last padded with zeros."""
    return jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1)


def join(chunks: Shaped[Array, "n c"], shape: tuple[int, ...]) -> Shaped[Array, "..."]:
    """The array of this shape that `split` cut into chunks."""
    return chunks.ravel()[: math.prod(shape)].reshape(shape)
