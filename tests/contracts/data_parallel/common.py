"""What answers to several exercises are made of."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def here(tree, axis):
    return lax.pcast(tree, axis, to="varying")


def local(loss_fn, params, batch, axis):
    return jax.value_and_grad(loss_fn)(here(params, axis), batch)


def cut_into_chunks(x, n):
    return jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1)


def scatter_and_gather(x, axis):
    n = lax.axis_size(axis)
    chunk = lax.psum_scatter(cut_into_chunks(x, n), axis) / n
    return lax.all_gather(chunk, axis).ravel()[: x.size].reshape(x.shape)
