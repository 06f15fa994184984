"""Answers to cached_attention: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.flash import attend
from jaxpar.parallel.decode import rotary_by_row
from tests.contracts.answers import right


def _refused(num_heads, num_kv_heads, axis):
    n = lax.axis_size(axis)
    if num_heads % n or (num_kv_heads % n and n % num_kv_heads):
        raise ValueError("heads")


def _new(x, w_q, w_k, w_v, k_cache, lengths):
    h = k_cache.shape[3]
    q, k, v = ((x @ w).reshape(len(x), -1, 1, h) for w in (w_q, w_k, w_v))
    return rotary_by_row(q, lengths[:, None]), rotary_by_row(k, lengths[:, None]), v


def _attended(q, k_cache, v_cache, lengths):
    seen = jnp.arange(k_cache.shape[2])[None] <= lengths[:, None]
    return attend(q, k_cache, v_cache, seen[:, None])[0].astype(q.dtype).reshape(len(q), -1)


@right
def written_by_a_mask(
    x, w_q, w_k, w_v, w_o, k_cache, v_cache, lengths, *, num_heads, num_kv_heads, axis
):
    _refused(num_heads, num_kv_heads, axis)
    own = lax.pcast(x, axis, to="varying")
    q, k, v = _new(own, w_q, w_k, w_v, k_cache, lengths)
    here = (jnp.arange(k_cache.shape[2])[None] == lengths[:, None])[:, None, :, None]
    k_cache, v_cache = jnp.where(here, k, k_cache), jnp.where(here, v, v_cache)
    y = lax.psum(_attended(q, k_cache, v_cache, lengths) @ w_o, axis)
    return y, k_cache, v_cache


@right
def row_by_row(x, w_q, w_k, w_v, w_o, k_cache, v_cache, lengths, *, num_heads, num_kv_heads, axis):
    """Each row by itself, under vmap, and the sum as two collectives."""
    _refused(num_heads, num_kv_heads, axis)
    own = lax.pcast(x, axis, to="varying")
    q, k, v = _new(own, w_q, w_k, w_v, k_cache, lengths)

    @jax.vmap
    def write(cache, new, length):
        return lax.dynamic_update_slice_in_dim(cache, new, length, axis=1)

    at = lax.pcast(lengths, axis, to="varying")
    k_cache, v_cache = write(k_cache, k, at), write(v_cache, v, at)
    kv, h = k_cache.shape[1], k_cache.shape[3]

    @jax.vmap
    def attended(q, keys, values, length):
        q = q.reshape(kv, -1, h).astype(jnp.float32) / h**0.5
        scores = q @ keys.mT.astype(jnp.float32)
        scores = jnp.where(jnp.arange(keys.shape[1])[None, None] <= length, scores, -jnp.inf)
        return (jax.nn.softmax(scores) @ values).reshape(-1)

    y = attended(q, k_cache, v_cache, at).astype(x.dtype) @ w_o
    return lax.psum(y, axis), k_cache, v_cache


@wrong("values")
def of_dynamic_slices_without_masks(x, w_q, w_k, w_v, w_o, k_cache, v_cache, lengths, **how):
    """Writes all rows at the largest length."""
    longest = jnp.full_like(lengths, lengths.max())
    return row_by_row(x, w_q, w_k, w_v, w_o, k_cache, v_cache, longest, **how)


@wrong("values")
def zeros_behind_the_end(x, w_q, w_k, w_v, w_o, k_cache, v_cache, lengths, **how):
    """Right results, and caches without what was behind: they are what they were."""
    behind = (jnp.arange(k_cache.shape[2])[None] > lengths[:, None])[:, None, :, None]
    clear = [jnp.where(behind, 0, cache) for cache in (k_cache, v_cache)]
    return row_by_row(x, w_q, w_k, w_v, w_o, *clear, lengths, **how)


@wrong("values")
def written_for_two_and_six(x, *arrays, num_heads, num_kv_heads, axis):
    if lax.axis_size(axis) not in (2, 6):
        raise KeyError("another mesh")
    how = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "axis": axis}
    return row_by_row(x, *arrays, **how)


@wrong("values")
def caches_in_float32(x, *arrays, **how):
    y, k_cache, v_cache = row_by_row(x, *arrays, **how)
    return y, k_cache.astype(jnp.float32), v_cache.astype(jnp.float32)


@wrong("communication")
def summed_in_float32(
    x, w_q, w_k, w_v, w_o, k_cache, v_cache, lengths, *, num_heads, num_kv_heads, axis
):
    _refused(num_heads, num_kv_heads, axis)
    own = lax.pcast(x, axis, to="varying")
    q, k, v = _new(own, w_q, w_k, w_v, k_cache, lengths)
    here = (jnp.arange(k_cache.shape[2])[None] == lengths[:, None])[:, None, :, None]
    k_cache, v_cache = jnp.where(here, k, k_cache), jnp.where(here, v, v_cache)
    part = _attended(q, k_cache, v_cache, lengths).astype(jnp.float32) @ w_o
    return lax.psum(part, axis).astype(x.dtype), k_cache, v_cache


@wrong("communication")
def heads_gathered_then_summed(
    x, w_q, w_k, w_v, w_o, k_cache, v_cache, lengths, *, num_heads, num_kv_heads, axis
):
    """Every device has the results of all heads, and takes its own again."""
    _refused(num_heads, num_kv_heads, axis)
    own = lax.pcast(x, axis, to="varying")
    q, k, v = _new(own, w_q, w_k, w_v, k_cache, lengths)
    here = (jnp.arange(k_cache.shape[2])[None] == lengths[:, None])[:, None, :, None]
    k_cache, v_cache = jnp.where(here, k, k_cache), jnp.where(here, v, v_cache)
    all_heads = lax.all_gather(_attended(q, k_cache, v_cache, lengths), axis, axis=1, tiled=True)
    mine = lax.dynamic_slice_in_dim(all_heads, lax.axis_index(axis) * w_o.shape[0], w_o.shape[0], 1)
    return lax.psum(mine @ w_o, axis), k_cache, v_cache


@wrong("memory")
def cache_in_float32(
    x, w_q, w_k, w_v, w_o, k_cache, v_cache, lengths, *, num_heads, num_kv_heads, axis
):
    """Copies of the caches for every head, in float32."""
    _refused(num_heads, num_kv_heads, axis)
    own = lax.pcast(x, axis, to="varying")
    q, k, v = _new(own, w_q, w_k, w_v, k_cache, lengths)
    here = (jnp.arange(k_cache.shape[2])[None] == lengths[:, None])[:, None, :, None]
    k_cache, v_cache = jnp.where(here, k, k_cache), jnp.where(here, v, v_cache)
    group = q.shape[1] // k_cache.shape[1]
    keys, values = (jnp.repeat(c.astype(jnp.float32), group, axis=1) for c in (k_cache, v_cache))
    y = _attended(q, keys, values, lengths)
    return lax.psum(y @ w_o, axis), k_cache, v_cache


@wrong("flops")
def two_tokens_at_once(
    x, w_q, w_k, w_v, w_o, k_cache, v_cache, lengths, *, num_heads, num_kv_heads, axis
):
    """Computes the newest token and, for nothing, the one before it."""
    how = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "axis": axis}
    y, k, v = written_by_a_mask(x, w_q, w_k, w_v, w_o, k_cache, v_cache, lengths, **how)
    own = lax.pcast(x, axis, to="varying")
    q, _, _ = _new(2 * own, w_q, w_k, w_v, k_cache, lengths)
    again = _attended(q, k, v, lengths)
    return y, k + 0 * again.sum().astype(k.dtype), v
