"""What the exercises of the lesson on inference have in common."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

LARGE = 1e35
"""A number that stands where nothing may look: finite, and larger than any mask that is added."""


def tokens(drawn: Array, v: int) -> Array:
    """Tokens of the vocabulary."""
    return drawn % v


def counts(drawn: Array, least: int, most: int) -> Array:
    """How many tokens each row has: different numbers, up to what there is room for."""
    return least + drawn % (most - least + 1)


def seen_attention(q: Array, k: Array, v: Array, seen: Array) -> Array:
    """Attention [b a t h] to keys [b k s h], of which each query sees some: [b t s]."""
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = jnp.einsum("bath,bash->bats", q, k) / math.sqrt(q.shape[-1])
    weights = jax.nn.softmax(jnp.where(seen[:, None], scores, -jnp.inf))
    # What weighs nothing may be NaN.
    return jnp.einsum("bats,bash->bath", weights, jnp.where(jnp.isfinite(v), v, 0))


def with_heads(x: Array, heads: int) -> Array:
    """[b heads*h] to [b heads 1 h]."""
    return x.reshape(len(x), heads, 1, -1)
