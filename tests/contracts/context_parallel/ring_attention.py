"""Answers to ring_attention: right ones by other routes, and wrong ones."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from jaxpar.flash import attend, merge
from tests.contracts.answers import right


def _refused(q, k):
    if q.shape[1] % k.shape[1]:
        raise ValueError("kv heads")


def _masked(q, k, v, i, source):
    t = q.shape[2]
    seen = source * t + jnp.arange(t)[None] <= i * t + jnp.arange(t)[:, None]
    return attend(q, k, v, seen[None])


@right
def ring_in_a_checkpointed_scan(q, k, v, *, axis):
    _refused(q, k)
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    @partial(jax.checkpoint, prevent_cse=False)
    def one_round(state, r):
        k, v, done = state
        k, v = hop(k, axis), hop(v, axis)
        return (k, v, merge(done, _masked(q, k, v, i, (i - r) % n))), None

    start = k, v, _masked(q, k, v, i, i)
    return lax.scan(one_round, start, jnp.arange(1, n))[0][2][0].astype(q.dtype)


@right
def ring_with_one_message(q, k, v, *, axis):
    """Keys and values in one array, and the running maximum, sum and result by hand."""
    _refused(q, k)
    n, i, t = lax.axis_size(axis), lax.axis_index(axis), q.shape[2]
    (b, a, _, h), kv = q.shape, k.shape[1]
    queries = q.reshape(b, kv, a // kv, t, h) * h**-0.5

    @partial(jax.checkpoint, prevent_cse=False)
    def add(both, done, source):
        o, top, total = done
        k, v = both
        scores = jnp.einsum("bkgth,bksh->bkgts", queries, k, preferred_element_type=jnp.float32)
        seen = source * t + jnp.arange(t)[None] <= i * t + jnp.arange(t)[:, None]
        scores = jnp.where(seen[None, None, None], scores, -1e30)
        new = jnp.maximum(top, lax.stop_gradient(scores.max(-1, keepdims=True)))
        weights, shrink = jnp.exp(scores - new), jnp.exp(top - new)
        part = jnp.einsum("bkgts,bksh->bkgth", weights, v.astype(jnp.float32))
        return o * shrink + part, new, total * shrink + weights.sum(-1, keepdims=True)

    def one_round(state, r):
        both, done = hop(state[0], axis), state[1]
        return (both, add(both, done, (i - r) % n)), None

    zeros = jnp.zeros_like(queries, jnp.float32)
    none = zeros, zeros[..., :1] - 1e30, zeros[..., :1]
    both = jnp.stack([k, v])
    (_, (o, _, total)), _ = lax.scan(one_round, (both, add(both, none, i)), jnp.arange(1, n))
    return (o / total).reshape(q.shape).astype(q.dtype)


@right
def ring_that_sends_while_it_computes(q, k, v, *, axis):
    """And the other way round."""
    _refused(q, k)
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    part = jax.checkpoint(_masked, prevent_cse=False)

    def one_round(state, r):
        k, v, done = state
        return (*_back(k, v, axis), merge(done, part(q, k, v, i, (i + r) % n))), None

    done = _masked(q, k, v, i, i)
    if n > 1:
        start = *_back(k, v, axis), done
        (k, v, done), _ = lax.scan(one_round, start, jnp.arange(1, n - 1))
        done = merge(done, part(q, k, v, i, (i - 1) % n))
    return done[0].astype(q.dtype)


def _back(k, v, axis):
    return hop(k, axis, -1), hop(v, axis, -1)


@wrong("values")
def ring_of_eight(q, k, v, *, axis):
    """Knows the length of the first case."""
    _refused(q, k)
    if q.shape[2] != 32:
        raise ValueError("another length")
    return ring_in_a_checkpointed_scan(q, k, v, axis=axis)


@wrong("values")
def ring_on_several_devices(q, k, v, *, axis):
    if lax.axis_size(axis) == 1:
        raise ValueError("one device")
    return ring_in_a_checkpointed_scan(q, k, v, axis=axis)


@wrong("communication")
def ring_both_ways(q, k, v, *, axis):
    """Queries travel instead of keys, with all that was found for them."""
    _refused(q, k)
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    def one_round(state, r):
        q, done = jax.tree.map(lambda x: hop(x, axis), state)
        return (q, merge(done, _masked(q, k, v, (i - r) % n, i))), None

    state = q, _masked(q, k, v, i, i)
    (q, done), _ = lax.scan(one_round, state, jnp.arange(1, n))
    return hop(done[0], axis).astype(q.dtype)


@wrong("flops")
def ring_computed_twice(q, k, v, *, axis):
    """Every block once for the sum and once for the result."""
    _refused(q, k)
    n, i = lax.axis_size(axis), lax.axis_index(axis)

    @partial(jax.checkpoint, prevent_cse=False)
    def one_round(state, r):
        k, v, done = state
        k, v = hop(k, axis), hop(v, axis)
        o, _ = _masked(q, k, v, i, (i - r) % n)
        _, lse = _masked(2 * q, k / 2, v + 1, i, (i - r) % n)
        return (k, v, merge(done, (o, lse))), None

    start = k, v, _masked(q, k, v, i, i)
    return lax.scan(one_round, start, jnp.arange(1, n))[0][2][0].astype(q.dtype)
