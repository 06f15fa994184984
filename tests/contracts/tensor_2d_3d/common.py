"""What answers to several exercises are made of."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.mesh import varying_axes


def square(rows, cols):
    if lax.axis_size(rows) != lax.axis_size(cols):
        raise ValueError("rows and cols differ")
    return lax.axis_size(rows)


def zeros(x, w):
    axes = tuple(varying_axes(x) | varying_axes(w))
    return lax.pcast(jnp.zeros((len(x), w.shape[1]), x.dtype), axes, to="varying")


def gathered(x, axis, dim):
    return lax.all_gather(x, axis, axis=dim, tiled=True)


def brought(x, root, axis):
    return lax.psum(jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x)), axis)


def ring(x, axis, dim):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = [x]
    for _ in range(n - 1):
        blocks.append(lax.ppermute(blocks[-1], axis, [(j, (j + 1) % n) for j in range(n)]))
    in_order = jnp.stack(blocks)[(i - jnp.arange(n)) % n]
    return jnp.concatenate(list(in_order), axis=dim)


def summa_by_gathers(x, w, *, rows, cols):
    square(rows, cols)
    return gathered(x, cols, 1) @ gathered(w, rows, 0)
