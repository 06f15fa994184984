"""Answers to reshard_rows_to_columns: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _blocks(x, axis):
    n = lax.axis_size(axis)
    if x.shape[1] % n:
        raise ValueError("the devices do not divide the columns")
    return x.reshape(x.shape[0], n, -1).swapaxes(0, 1)


@right
def blocks_exchanged(x, *, axis):
    blocks = lax.all_to_all(_blocks(x, axis), axis, 0, 0, tiled=True)
    return blocks.reshape(-1, blocks.shape[-1])


@right
def by_permutes(x, *, axis):
    blocks, n, i = _blocks(x, axis), lax.axis_size(axis), lax.axis_index(axis)
    found = jnp.zeros_like(blocks).at[i].set(blocks[i])
    for k in range(1, n):
        pairs = [(j, (j + k) % n) for j in range(n)]
        found = found.at[(i - k) % n].set(lax.ppermute(blocks[(i + k) % n], axis, pairs))
    return found.reshape(-1, blocks.shape[-1])


@wrong("values")
def sent_in_half_the_bytes(x, *, axis):
    return blocks_exchanged(x.astype(jnp.bfloat16), axis=axis).astype(x.dtype)


@wrong("communication")
def gathered_block_by_block(x, *, axis):
    """Each block of columns is gathered by all devices, and one of them is kept."""
    gathered = [lax.all_gather(block, axis, tiled=True) for block in _blocks(x, axis)]
    return jnp.stack(gathered)[lax.axis_index(axis)]


@wrong("communication")
def round_the_ring_whole(x, *, axis):
    """All of x goes round the ring, and each device takes its columns of what passes."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = _blocks(x, axis)
    found = jnp.zeros_like(blocks).at[i].set(blocks[i])
    for k in range(1, n):
        blocks = lax.ppermute(blocks, axis, [(j, (j + 1) % n) for j in range(n)])
        found = found.at[(i - k) % n].set(blocks[i])
    return found.reshape(-1, blocks.shape[-1])


@wrong("communication")
def exchanged_twice(x, *, axis):
    there = blocks_exchanged(x, axis=axis)
    back = lax.all_to_all(there, axis, 0, 1, tiled=True)
    return blocks_exchanged(back, axis=axis)


@wrong("errors")
def padded_without_a_word(x, *, axis):
    return blocks_exchanged(jnp.pad(x, ((0, 0), (0, -x.shape[1] % lax.axis_size(axis)))), axis=axis)


@wrong("values")
def written_for_four(x, *, axis):
    _blocks(x, axis)
    size = x.shape[1] // 4
    y = lax.all_gather(x, axis, tiled=True)
    return lax.dynamic_slice_in_dim(y, lax.axis_index(axis) * size, size, 1)
