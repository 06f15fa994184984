"""What answers to several exercises are made of."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax


def ring(n, k):
    return [(j, (j + k) % n) for j in range(n)]


def from_root(x, axis, root):
    return jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))
