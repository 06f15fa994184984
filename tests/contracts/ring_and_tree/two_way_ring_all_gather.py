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
        first = hop([x, *ups][-1].ravel()[:half], axis, 1)
        second = hop([x, *downs][-1].ravel()[half:], axis, -1)
        y = y.at[(i + n // 2) % n].set(jnp.concatenate([first, second]).reshape(x.shape))
    return y


@right
def gathers_half_each_way(x, *, axis):
    n, flat = lax.axis_size(axis), x.ravel()
    first, second = flat[: x.size // 2], flat[x.size // 2 :]
    up = in_device_order(first, received(first, axis, n - 1, 1), [], axis=axis)
    down = in_device_order(second, [], received(second, axis, n - 1, -1), axis=axis)
    return jnp.concatenate([up, down], axis=1).reshape(n, *x.shape)


@wrong("values")
def gathers_even_rows_each_way(x, *, axis):
    n = lax.axis_size(axis)
    first, second = jnp.split(x, 2)
    up = in_device_order(first, received(first, axis, n - 1, 1), [], axis=axis)
    down = in_device_order(second, [], received(second, axis, n - 1, -1), axis=axis)
    return jnp.concatenate([up, down], axis=1)


@wrong("values")
def gathers_last_hop_after_others(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    hops = (n - 1) // 2
    ups, downs = received(x, axis, hops, 1), received(x, axis, hops, -1)
    y = in_device_order(x, ups, downs, axis=axis)
    if n % 2 == 0:
        y = y.at[(i + n // 2) % n].set(hop(ups[-1], axis, 1))  # for n = 2, ups is empty
    return y


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


def _slots(x, axis):
    """slots[k] is the block of device i + k."""
    n = lax.axis_size(axis)
    before, after = received(x, axis, n // 2, 1), received(x, axis, n - 1 - n // 2, -1)
    return [x, *after, *before[::-1]]


@right
def gathers_among_zeros(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros((n, *x.shape), x.dtype)
    here = jnp.arange(n).reshape(-1, *[1] * x.ndim)
    for k, block in enumerate(_slots(x, axis)):
        y = jnp.where(here == (i + k) % n, block, y)
    return y


@right
def gathers_by_switch(x, *, axis):
    n, slots = lax.axis_size(axis), _slots(x, axis)
    orders = [lambda d=d: jnp.stack([slots[(j - d) % n] for j in range(n)]) for d in range(n)]
    return lax.switch(lax.axis_index(axis), orders)


@wrong("memory")
def gathers_every_order(x, *, axis):
    n, slots = lax.axis_size(axis), _slots(x, axis)
    orders = [jnp.stack([slots[(j - d) % n] for j in range(n)]) for d in range(n)]
    held = lax.optimization_barrier(jnp.stack(orders))  # newer versions of XLA make only one
    return held[lax.axis_index(axis)]


@wrong("values")
def gathers_into_float32(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.zeros((n, *x.shape))
    for k, block in enumerate(_slots(x, axis)):
        y = y.at[(i + k) % n].set(block.astype(jnp.float32))
    return y.astype(x.dtype)


@wrong("values")
def gathers_by_products(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    slots = jnp.stack(_slots(x, axis)).astype(jnp.float32)
    hot = jnp.arange(n)[:, None] == (i + jnp.arange(n)) % n
    y = jnp.tensordot(hot.astype(jnp.float32), slots, 1, precision=lax.Precision.HIGHEST)
    return y.astype(x.dtype)


@wrong("values")
def gathers_four_hops_at_most(x, *, axis):
    n = lax.axis_size(axis)
    up, down = min(n // 2, 4), min(n - 1 - n // 2, 4)
    return in_device_order(x, received(x, axis, up), received(x, axis, down, -1), axis=axis)


@wrong("values")
def gathers_in_stacks(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    ups = jnp.stack(received(x, axis, n // 2, 1))  # there are none on one device
    downs = received(x, axis, n - 1 - n // 2, -1)
    return jnp.stack([x, *downs, *ups[::-1]])[(jnp.arange(n) - i) % n]


@wrong("values")
def gathers_in_float32_whatever_comes(x, *, axis):
    return gathers_in_one_loop(x.astype(jnp.float32), axis=axis)


@right
def gathers_at_places(x, *, axis):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    y, up, down = jnp.zeros((n, *x.shape), x.dtype).at[i].set(x), x, x
    for k in range(1, n // 2 + 1):
        up = hop(up, axis, 1)
        y = y.at[(i - k) % n].set(up)
    for k in range(1, n - n // 2):
        down = hop(down, axis, -1)
        y = y.at[(i + k) % n].set(down)
    return y
