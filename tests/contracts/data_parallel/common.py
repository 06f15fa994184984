"""What answers to several exercises on data parallelism are made of."""

from __future__ import annotations

from jax import lax

from jaxpar.contracts.ring_and_tree.common import chunks


def scatter_and_gather(x, axis):
    n = lax.axis_size(axis)
    chunk = lax.psum_scatter(chunks(x, n), axis) / n
    return lax.all_gather(chunk, axis).ravel()[: x.size].reshape(x.shape)
