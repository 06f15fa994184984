"""Answers to ulysses_attention: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.flash import attend, flash_attention, usual_tile
from tests.contracts.answers import right


def _refused(q, k, axis):
    n, a, kv = lax.axis_size(axis), q.shape[1], k.shape[1]
    if a % n or a % kv or (kv % n and n % kv):
        raise ValueError("heads")
    return n


def _causal(q, k, v):
    return attend(q, k, v, jnp.tril(jnp.ones((q.shape[2],) * 2, bool))[None])[0].astype(q.dtype)


@right
def heads_by_untiled_exchanges(q, k, v, *, axis):
    n = _refused(q, k, axis)

    def enter(x):
        b, heads, t, h = x.shape
        parts = jnp.moveaxis(x.reshape(b, n, heads // n, t, h), 1, 0)
        parts = lax.all_to_all(parts, axis, split_axis=0, concat_axis=0)  # [n b a/n t h]
        return jnp.moveaxis(parts, 0, 2).reshape(b, heads // n, n * t, h)

    k, v = (jnp.repeat(x, max(1, n // x.shape[1]), axis=1) for x in (k, v))
    y = _causal(enter(q), enter(k), enter(v))
    b, heads, s, h = y.shape
    parts = jnp.moveaxis(y.reshape(b, heads, n, s // n, h), 2, 0)
    parts = lax.all_to_all(parts, axis, split_axis=0, concat_axis=0)  # [n b a/n t h]
    return jnp.moveaxis(parts, 0, 1).reshape(b, n * heads, s // n, h)


@right
def heads_by_permutes(q, k, v, *, axis):
    """A message for each pair of devices."""
    n, i = _refused(q, k, axis), lax.axis_index(axis)

    def exchanged(x, split, concat):
        size = x.shape[split] // n
        parts = []
        for r in range(n):  # to device i + r goes its part, and from i - r comes mine
            part = lax.dynamic_slice_in_dim(x, (i + r) % n * size, size, split)
            to = [(j, (j + r) % n) for j in range(n)]
            parts.append(lax.ppermute(part, axis, to) if r else part)
        order = (i - jnp.arange(n)) % n
        stacked = jnp.stack(parts)[order]
        moved = jnp.moveaxis(stacked, 0, concat)
        return moved.reshape(*moved.shape[:concat], -1, *moved.shape[concat + 2 :])

    k, v = (jnp.repeat(x, max(1, n // x.shape[1]), axis=1) for x in (k, v))
    return exchanged(_causal(*(exchanged(x, 1, 2) for x in (q, k, v))), 2, 1)


def _in_one_exchange_for_keys(q, k, v, axis, attention):
    n = _refused(q, k, axis)
    enter = lambda x, dim: lax.all_to_all(  # noqa: E731
        x, axis, split_axis=dim, concat_axis=dim + 1, tiled=True
    )
    both = jnp.repeat(jnp.stack([k, v]), max(1, n // k.shape[1]), axis=2)
    k, v = enter(both, 2)
    y = attention(enter(q, 1), k, v)
    return lax.all_to_all(y, axis, split_axis=2, concat_axis=1, tiled=True)


def _by_tiles(q, k, v):
    return flash_attention(q, k, v, tile=usual_tile(q.shape[2]))


@right
def heads_in_one_exchange_for_keys(q, k, v, *, axis):
    return _in_one_exchange_for_keys(q, k, v, axis, _by_tiles)


@wrong("values")
def heads_on_several_devices(q, k, v, *, axis):
    if lax.axis_size(axis) == 1:
        raise ValueError("one device")
    return heads_by_permutes(q, k, v, axis=axis)


@wrong("values")
def heads_with_keys_of_device_zero(q, k, v, *, axis):
    n = _refused(q, k, axis)
    k, v = (jnp.repeat(x[:, :1], max(n, x.shape[1]), axis=1) for x in (k, v))
    return heads_by_permutes(q, k, v, axis=axis)


@wrong("communication")
def heads_and_a_ring_of_keys(q, k, v, *, axis):
    """Queries are exchanged for heads, and all keys and values are gathered."""
    n, i = _refused(q, k, axis), lax.axis_index(axis)
    k, v = (lax.all_gather(x, axis, axis=2, tiled=True) for x in (k, v))
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    size = q.shape[1] // n
    k, v = (lax.dynamic_slice_in_dim(x, i * size, size, 1) for x in (k, v))
    q = lax.all_to_all(q, axis, split_axis=1, concat_axis=2, tiled=True)
    return lax.all_to_all(_causal(q, k, v), axis, split_axis=2, concat_axis=1, tiled=True)


@wrong("flops")
def heads_computed_three_times(q, k, v, *, axis):
    def three_times(q, k, v):
        return (sum(_by_tiles(q, k, v * s) / s for s in (1, 2, 4)) / 3).astype(q.dtype)

    return _in_one_exchange_for_keys(q, k, v, axis, three_times)
