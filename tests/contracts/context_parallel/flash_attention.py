"""Answers to flash_attention: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.flash import attend, merge
from tests.contracts.answers import right

NEVER = -1e30


def _refused(q, k, tile):
    if q.shape[2] % tile or q.shape[1] % k.shape[1]:
        raise ValueError("sizes do not fit")


def _cut(x, tile):
    b, heads, t, h = x.shape
    return jnp.moveaxis(x.reshape(b, heads, t // tile, tile, h), 2, 0)


def _joined(x):
    n, b, heads, tile, h = x.shape
    return jnp.moveaxis(x, 0, 2).reshape(b, heads, n * tile, h)


def _seen(i, j, tile):
    place = jnp.arange(tile)
    return ((j * tile + place)[None] <= (i * tile + place)[:, None])[None]


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _rows(q, k, v, tile, upto):
    return _rows_forward(q, k, v, tile, upto)[0]


def _rows_forward(q, k, v, tile, upto):
    """Row after row in Python, for each a loop over its columns."""
    queries, keys, values = (_cut(x, tile) for x in (q, k, v))
    parts = []
    for i, row in enumerate(queries):

        def visit(j, done, i=i, row=row):
            return merge(done, attend(row, keys[j], values[j], _seen(i, j, tile)))

        zeros = jnp.zeros_like(row, jnp.float32)
        parts.append(lax.fori_loop(0, upto(i, len(keys)), visit, (zeros, zeros[..., 0] + NEVER)))
    o = _joined(jnp.stack([o for o, _ in parts])).astype(q.dtype)
    return o, (q, k, v, o, jnp.stack([lse for _, lse in parts]))


def _rows_backward(tile, upto, kept, do):
    q, k, v, o, lse = kept
    (b, a, _, h), kv = q.shape, k.shape[1]
    group = lambda x: x.reshape(*x.shape[:2], kv, a // kv, *x.shape[3:])  # noqa: E731
    delta = (do * o).astype(jnp.float32).sum(-1, keepdims=True)
    queries, results, rows = (group(_cut(x, tile)) for x in (q, do, delta))
    keys, values, lse = _cut(k, tile), _cut(v, tile), group(lse)
    scale = 1 / math.sqrt(h)
    dk, dv = jnp.zeros_like(keys, jnp.float32), jnp.zeros_like(values, jnp.float32)
    dqs = []
    product = partial(jnp.einsum, preferred_element_type=jnp.float32)
    for i in range(len(keys)):

        def visit(j, state, i=i):
            dq, dk, dv = state
            x = product("bkgth,bksh->bkgts", queries[i], keys[j]) * scale
            p = jnp.where(_seen(i, j, tile)[:, None, None], jnp.exp(x - lse[i][..., None]), 0)
            ds = p * (product("bkgth,bksh->bkgts", results[i], values[j]) - rows[i]) * scale
            p, ds = p.astype(v.dtype), ds.astype(q.dtype)
            dv = dv.at[j].add(product("bkgts,bkgth->bksh", p, results[i]))
            dk = dk.at[j].add(product("bkgts,bkgth->bksh", ds, queries[i]))
            return dq + product("bkgts,bksh->bkgth", ds, keys[j]), dk, dv

        start = jnp.zeros_like(queries[i], jnp.float32), dk, dv
        dq, dk, dv = lax.fori_loop(0, upto(i, len(keys)), visit, start)
        dqs.append(dq.reshape(b, a, tile, h))
    found = _joined(jnp.stack(dqs)), _joined(dk), _joined(dv)
    return tuple(dx.astype(x.dtype) for dx, x in zip(found, (q, k, v), strict=True))


_rows.defvjp(_rows_forward, _rows_backward)


@right
def flash_row_after_row(q, k, v, *, tile):
    _refused(q, k, tile)
    return _rows(q, k, v, tile, lambda i, n: i + 1)


@wrong("flops")
def flash_rows_of_all_keys(q, k, v, *, tile):
    _refused(q, k, tile)
    return _rows(q, k, v, tile, lambda i, n: n)


@wrong("values")
def flash_that_forgets_the_last_row(q, k, v, *, tile):
    _refused(q, k, tile)
    y = _rows(q, k, v, tile, lambda i, n: i + 1)
    return y.at[:, :, -1].set(v[:, :, -1].repeat(q.shape[1] // k.shape[1], axis=1))


@wrong("values")
def flash_of_even_tiles(q, k, v, *, tile):
    if (q.shape[2] // tile) % 2:
        raise ValueError("an odd number of tiles")
    return flash_row_after_row(q, k, v, tile=tile)


@wrong("memory")
def flash_by_one_checkpoint(q, k, v, *, tile):
    """All scores, once forward and once more for the gradient."""
    _refused(q, k, tile)
    past = jnp.asarray(np.tril(np.ones((q.shape[2],) * 2, bool)))

    @jax.checkpoint
    def whole(q, k, v):
        return attend(q, k, v, past[None])[0].astype(q.dtype)

    return whole(q, k, v)


@wrong("memory")
def flash_with_whole_rows(q, k, v, *, tile):
    """No online softmax: a block of queries has the scores of all keys before it."""
    _refused(q, k, tile)

    @partial(jax.checkpoint, static_argnums=(3,))
    def row(q, k, v, i):
        size = min((i + 1) * tile, k.shape[2])
        seen = jnp.arange(size)[None] <= i * tile + jnp.arange(tile)[:, None]
        return attend(q, k[:, :, :size], v[:, :, :size], seen[None])[0].astype(q.dtype)

    parts = [row(q[:, :, i : i + tile], k, v, i // tile) for i in range(0, q.shape[2], tile)]
    return jnp.concatenate(parts, axis=2)
