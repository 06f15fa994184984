"""Answers to paged_attention: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.flash import attend, merge
from jaxpar.mesh import vary_alike
from tests.contracts.answers import right


def _refused(q, k_pages):
    if q.shape[1] % k_pages.shape[1]:
        raise ValueError("heads")


def _part(q, k, v, at, lengths):
    """Attention to tokens at these places [s] of each row."""
    t = q.shape[2]
    positions = lengths[:, None] - t + jnp.arange(t)[None]
    v = jnp.where((at[None] < lengths[:, None])[:, None, :, None], v, 0)
    return attend(q, k, v, at[None, None] <= positions[:, :, None])


@right
def scan_over_the_table(q, k_pages, v_pages, table, lengths):
    """All pages of the table, however long the rows are."""
    _refused(q, k_pages)
    arrays = vary_alike(q, k_pages, v_pages, table, lengths)
    q, k_pages, v_pages, table, lengths = arrays
    s = k_pages.shape[2]

    def with_page(done, given):
        j, page = given
        part = _part(q, k_pages[page], v_pages[page], j * s + jnp.arange(s), lengths)
        return merge(done, part), None

    start = jnp.zeros_like(q, jnp.float32), jnp.full_like(q[..., 0], -1e30, jnp.float32)
    numbers = jnp.arange(table.shape[1])
    return lax.scan(with_page, start, (numbers, table.T))[0][0].astype(q.dtype)


@right
def online_softmax_by_hand(q, k_pages, v_pages, table, lengths):
    """The largest score, the sum and the result so far; entries are clamped to the pages."""
    _refused(q, k_pages)
    q, k_pages, v_pages, table, lengths = vary_alike(q, k_pages, v_pages, table, lengths)
    (b, a, t, h), (pages, kv, s, _) = q.shape, k_pages.shape
    wide = q.reshape(b, kv, a // kv, t, h).astype(jnp.float32) * h**-0.5
    positions = lengths[:, None] - t + jnp.arange(t)[None]

    def with_page(j, state):
        o, top, total = state
        page = jnp.clip(table[:, j], 0, pages - 1)
        k, v = (x[page].astype(jnp.float32) for x in (k_pages, v_pages))
        at = j * s + jnp.arange(s)
        seen = (at[None, None] <= positions[:, :, None])[:, None, None]
        scores = jnp.where(seen, jnp.einsum("bkgth,bksh->bkgts", wide, k), -1e30)
        new = jnp.maximum(top, scores.max(-1, keepdims=True))
        weights, shrink = jnp.where(seen, jnp.exp(scores - new), 0), jnp.exp(top - new)
        v = jnp.where((at[None] < lengths[:, None])[:, None, :, None], v, 0)
        o = o * shrink + jnp.einsum("bkgts,bksh->bkgth", weights, v)
        return o, new, total * shrink + weights.sum(-1, keepdims=True)

    zeros = jnp.zeros_like(wide)
    start = zeros, zeros[..., :1] - 1e30, zeros[..., :1]
    o, _, total = lax.fori_loop(0, (lengths.max() + s - 1) // s, with_page, start)
    return (o / total).reshape(q.shape).astype(q.dtype)


@wrong("memory")
def one_row_after_another(q, k_pages, v_pages, table, lengths):
    """All pages of one row at a time, which are more the longer a row may be."""
    _refused(q, k_pages)
    q, k_pages, v_pages, table, lengths = vary_alike(q, k_pages, v_pages, table, lengths)

    def of_row(given):
        q, table, length = given
        k, v = (jnp.concatenate(list(x[table]), axis=1) for x in (k_pages, v_pages))
        return _part(q[None], k[None], v[None], jnp.arange(k.shape[1]), length[None])[0][0]

    return lax.map(of_row, (q, table, lengths)).astype(q.dtype)


@wrong("values")
def stops_at_the_first_negative_entry(q, k_pages, v_pages, table, lengths):
    """Takes the table for as long as its entries are pages, and not the lengths."""
    counts = (table >= 0).sum(1) * k_pages.shape[2]
    return scan_over_the_table(q, k_pages, v_pages, table, counts)


@wrong("values")
def one_query_only(q, k_pages, v_pages, table, lengths):
    y = scan_over_the_table(q[:, :, -1:], k_pages, v_pages, table, lengths)
    return jnp.broadcast_to(y, q.shape)


@wrong("values")
def pages_of_sixteen_or_eight(q, k_pages, v_pages, table, lengths):
    if k_pages.shape[2] not in (16, 8):
        raise KeyError("another size")
    return scan_over_the_table(q, k_pages, v_pages, table, lengths)


@wrong("values")
def twelve_pages_at_most(q, k_pages, v_pages, table, lengths):
    most = 12 * k_pages.shape[2]
    return scan_over_the_table(q, k_pages, v_pages, table[:, :12], jnp.minimum(lengths, most))


@wrong("values")
def weights_in_16_bits_lost(q, k_pages, v_pages, table, lengths):
    """Rounds the result so far to the dtype of q after each page."""
    _refused(q, k_pages)
    q, k_pages, v_pages, table, lengths = vary_alike(q, k_pages, v_pages, table, lengths)
    s = k_pages.shape[2]

    def with_page(done, given):
        j, page = given
        part = _part(q, k_pages[page], v_pages[page], j * s + jnp.arange(s), lengths)
        o, lse = merge(done, part)
        return (o.astype(q.dtype), lse.astype(q.dtype)), None

    start = jnp.zeros_like(q), jnp.full_like(q[..., 0], -1e30)
    return lax.scan(with_page, start, (jnp.arange(table.shape[1]), table.T))[0][0]


@wrong("memory")
def pages_in_another_order(q, k_pages, v_pages, table, lengths):
    """A loop over pages, all of which are copied first, so that token after token is in memory."""
    k_pages, v_pages = (jnp.swapaxes(x, 1, 2) for x in (k_pages, v_pages))
    k_pages, v_pages = lax.optimization_barrier((k_pages, v_pages))
    k_pages, v_pages = (jnp.swapaxes(x, 1, 2) for x in (k_pages, v_pages))
    return scan_over_the_table(q, k_pages, v_pages, table, lengths)


@wrong("memory")
def unrolled(q, k_pages, v_pages, table, lengths):
    """A Python loop whose pages are all gathered at once."""
    _refused(q, k_pages)
    q, k_pages, v_pages, table, lengths = vary_alike(q, k_pages, v_pages, table, lengths)
    s, parts = k_pages.shape[2], []
    keys, values = k_pages[table], v_pages[table]
    for j in range(table.shape[1]):
        at = j * s + jnp.arange(s)
        parts.append(_part(q, keys[:, j], values[:, j], at, lengths))
    done = parts[0]
    for part in parts[1:]:
        done = merge(done, part)
    return done[0].astype(q.dtype)


@wrong("communication")
def results_averaged_over_heads(q, k_pages, v_pages, table, lengths):
    """Sends what nobody needs."""
    y = scan_over_the_table(q, k_pages, v_pages, table, lengths)
    axis = jax.sharding.get_abstract_mesh().axis_names[-1]
    return y + 0 * lax.psum(y, axis)
