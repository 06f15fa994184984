"""What answers to several exercises are made of."""

from __future__ import annotations

from jax import lax


def hop(x, axis, by=1):
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, (j + by) % n) for j in range(n)])
