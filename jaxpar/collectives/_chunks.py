"""Splits an array of any size into n equal chunks, and joins them again."""

import math

import jax.numpy as jnp
from jax import Array
from jaxtyping import Shaped


def split(x: Shaped[Array, "..."], n: int) -> Shaped[Array, "n c"]:
    """Splits the elements of x into n chunks of equal size; the last is padded with zeros."""
    return jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1)


def join(chunks: Shaped[Array, "n c"], shape: tuple[int, ...]) -> Shaped[Array, "..."]:
    """Joins the chunks that `split` made of an array of this shape, without the padding."""
    return chunks.ravel()[: math.prod(shape)].reshape(shape)
