"""Answers to two_way_ring_all_gather: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _hop(x, axis, by=1):
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, (j + by) % n) for j in range(n)])


def _place(x, up, down, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    slots = [x] * n  # slots[k] goes to i + k
    for k, block in enumerate(up, start=1):
        slots[-k % n] = block
    for k, block in enumerate(down, start=1):
        slots[k % n] = block
    return jnp.stack(slots)[(jnp.arange(n) - i) % n]


def _arrivals(x, hops, axis, by):
    arrived = []
    for _ in range(hops):
        x = _hop(x, axis, by)
        arrived.append(x)
    return arrived


@right
def gathers_more_from_below(x, *, axis):
    n = lax.axis_size(axis)
    up, down = _arrivals(x, (n - 1) // 2, axis, 1), _arrivals(x, n // 2, axis, -1)
    return _place(x, up, down, axis)


@right
def gathers_opposite_twice(x, *, axis):
    n = lax.axis_size(axis)
    up, down = _arrivals(x, n // 2, axis, 1), _arrivals(x, n // 2, axis, -1)
    return _place(x, up, down, axis)


@right
def gathers_in_one_loop(x, *, axis):
    n = lax.axis_size(axis)
    up, down, ups, downs = x, x, [], []
    for k in range(1, n // 2 + 1):
        up = _hop(up, axis, 1)
        ups.append(up)
        if 2 * k < n:
            down = _hop(down, axis, -1)
            downs.append(down)
    return _place(x, ups, downs, axis)


@right
def gathers_in_scans(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def ring(by, hops):
        def step(block, _):
            block = _hop(block, axis, by)
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
        up, down = _hop(up, axis, 1), _hop(down, axis, -1)
        y = lax.dynamic_update_index_in_dim(y, up, (i - k) % n, axis=0)
        return lax.dynamic_update_index_in_dim(y, down, (i + k) % n, axis=0), up, down

    y = jnp.zeros((n, *x.shape), x.dtype).at[i].set(x)
    return lax.fori_loop(1, n // 2 + 1, step, (y, x, x))[0]


@right
def gathers_last_hop_in_halves(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    hops = (n - 1) // 2
    ups, downs = _arrivals(x, hops, axis, 1), _arrivals(x, hops, axis, -1)
    y = _place(x, ups, downs, axis)
    if n % 2 == 0:
        half = x.size // 2
        first = _hop(ups[-1].ravel()[:half], axis, 1)
        second = _hop(downs[-1].ravel()[half:], axis, -1)
        y = y.at[(i + n // 2) % n].set(jnp.concatenate([first, second]).reshape(x.shape))
    return y


@right
def gathers_half_each_way(x, *, axis):
    n = lax.axis_size(axis)
    first, second = jnp.split(x, 2)
    up = _place(first, _arrivals(first, n - 1, axis, 1), [], axis)
    down = _place(second, [], _arrivals(second, n - 1, axis, -1), axis)
    return jnp.concatenate([up, down], axis=1)


@wrong("communication")
def gathers_lopsided(x, *, axis):
    n = lax.axis_size(axis)
    hops = n // 2 + 1
    ups, downs = _arrivals(x, hops, axis, 1), _arrivals(x, n - 1 - hops, axis, -1)
    return _place(x, ups, downs, axis)


@wrong("communication")
def gathers_by_both_full_rings(x, *, axis):
    hops = lax.axis_size(axis) - 1
    return _place(x, _arrivals(x, hops, axis, 1), _arrivals(x, hops, axis, -1), axis)


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
        y = jnp.where(y == 0, _hop(y, axis, 1), y)
        y = jnp.where(y == 0, _hop(y, axis, -1), y)
    return y


@wrong("communication")
def gathers_with_hidden_sum(x, *, axis):
    return gathers_in_one_loop(x, axis=axis) + 0 * lax.psum(x, axis)[None]
