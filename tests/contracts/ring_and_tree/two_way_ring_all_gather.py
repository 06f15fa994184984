"""Answers to two_way_ring_all_gather: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.ring_and_tree.common import in_device_order, received
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


@right
def gathers_more_from_below(x, *, axis):
    n = lax.axis_size(axis)
    up, down = received(x, axis, (n - 1) // 2, 1), received(x, axis, n // 2, -1)
    return in_device_order(x, up, down, axis=axis)


@right
def gathers_opposite_twice(x, *, axis):
    n = lax.axis_size(axis)
    up, down = received(x, axis, n // 2, 1), received(x, axis, n // 2, -1)
    return in_device_order(x, up, down, axis=axis)


@right
def gathers_in_one_loop(x, *, axis):
    n = lax.axis_size(axis)
    up, down, ups, downs = x, x, [], []
    for k in range(1, n // 2 + 1):
        up = hop(up, axis, 1)
        ups.append(up)
        if 2 * k < n:
            down = hop(down, axis, -1)
            downs.append(down)
    return in_device_order(x, ups, downs, axis=axis)


@right
def gathers_in_scans(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def ring(by, hops):
        def step(block, _):
            block = hop(block, axis, by)
            return block, block

        return lax.scan(step, x, None, length=hops)[1]

    ups, downs = ring(1, n // 2), ring(-1, n - 1 - n // 2)
    blocks = jnp.concatenate([downs[::-1], x[None], ups])  # from device i + ..., i, i - ...
    return jnp.roll(blocks[::-1], i - n // 2, axis=0)


@right
def gathers_in_a_loop_with_updates(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def step(k, state):
        y, up, down = state
        up, down = hop(up, axis, 1), hop(down, axis, -1)
        y = lax.dynamic_update_index_in_dim(y, up, (i - k) % n, axis=0)
        return lax.dynamic_update_index_in_dim(y, down, (i + k) % n, axis=0), up, down

    y = jnp.zeros((n, *x.shape), x.dtype).at[i].set(x)
    return lax.fori_loop(1, n // 2 + 1, step, (y, x, x))[0]


@right
def gathers_last_hop_in_halves(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    hops = (n - 1) // 2
    ups, downs = received(x, axis, hops, 1), received(x, axis, hops, -1)
    y = in_device_order(x, ups, downs, axis=axis)
    if n % 2 == 0:
        half = x.size // 2
        first = hop(ups[-1].ravel()[:half], axis, 1)
        second = hop(downs[-1].ravel()[half:], axis, -1)
        y = y.at[(i + n // 2) % n].set(jnp.concatenate([first, second]).reshape(x.shape))
    return y


@right
def gathers_half_each_way(x, *, axis):
    n = lax.axis_size(axis)
    first, second = jnp.split(x, 2)
    up = in_device_order(first, received(first, axis, n - 1, 1), [], axis=axis)
    down = in_device_order(second, [], received(second, axis, n - 1, -1), axis=axis)
    return jnp.concatenate([up, down], axis=1)


@wrong("communication")
def gathers_lopsided(x, *, axis):
    n = lax.axis_size(axis)
    hops = n // 2 + 1
    ups, downs = received(x, axis, hops, 1), received(x, axis, n - 1 - hops, -1)
    return in_device_order(x, ups, downs, axis=axis)


@wrong("communication")
def gathers_by_both_full_rings(x, *, axis):
    hops = lax.axis_size(axis) - 1
    return in_device_order(x, received(x, axis, hops, 1), received(x, axis, hops, -1), axis=axis)


@wrong("communication")
def gathers_in_free_pieces(x, *, axis):
    pieces = x.reshape(-1, 16 // x.dtype.itemsize)
    y = lax.map(lambda piece: lax.all_gather(piece, axis), pieces)  # [pieces, n, elements]
    return jnp.swapaxes(y, 0, 1).reshape(-1, *x.shape)


@wrong("communication")
def gathers_in_float32(x, *, axis):
    return gathers_in_one_loop(x.astype(jnp.float32), axis=axis).astype(x.dtype)


@wrong("communication")
def gathers_all_with_neighbours(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros((n, *x.shape), x.dtype).at[i].set(x)
    for _ in range(n // 2):
        y = jnp.where(y == 0, hop(y, axis, 1), y)
        y = jnp.where(y == 0, hop(y, axis, -1), y)
    return y


@wrong("communication")
def gathers_with_hidden_sum(x, *, axis):
    return gathers_in_one_loop(x, axis=axis) + 0 * lax.psum(x, axis)[None]
