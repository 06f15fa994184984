"""Answers to attention_over_shards: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.flash import attend
from tests.contracts.answers import right


def _scores(q, k):
    if q.shape[1] % k.shape[1]:
        raise ValueError("kv heads")
    k = jnp.repeat(k, q.shape[1] // k.shape[1], axis=1)
    wide = jnp.float32
    return jnp.einsum("bath,bash->bats", q * q.shape[-1] ** -0.5, k, preferred_element_type=wide)


@right
def shards_by_scores(q, k, v, *, axis):
    """Without log-sum-exp: the largest score, the sum of exponentials, and what they weigh."""
    scores = _scores(lax.pcast(q, axis, to="varying"), k)
    top = lax.pmax(lax.stop_gradient(scores.max(-1, keepdims=True)), axis)
    weights = jnp.exp(scores - top)
    values = jnp.repeat(v, q.shape[1] // v.shape[1], axis=1).astype(jnp.float32)
    total = lax.psum(jnp.einsum("bats,bash->bath", weights, values), axis)
    return (total / lax.psum(weights.sum(-1, keepdims=True), axis)).astype(q.dtype)


@right
def shards_with_gathered_sums(q, k, v, *, axis):
    """The numbers of rows are gathered; each device scales its own result."""
    o, lse = attend(lax.pcast(q, axis, to="varying"), k, v)
    every = lax.all_gather(lse, axis)
    weight = jnp.exp(lse - jax.nn.logsumexp(every, axis=0))
    return lax.psum(o * weight[..., None], axis).astype(q.dtype)


@right
def shards_in_one_message(q, k, v, *, axis):
    o, lse = attend(lax.pcast(q, axis, to="varying"), k, v)
    weight = jnp.exp(lse - lax.pmax(lax.stop_gradient(lse), axis))[..., None]
    both = lax.psum(jnp.concatenate([o * weight, weight], axis=-1), axis)
    return (both[..., :-1] / both[..., -1:]).astype(q.dtype)


@wrong("values")
def shards_of_the_first_device(q, k, v, *, axis):
    o, _ = attend(lax.pcast(q, axis, to="varying"), k, v)
    first = lax.axis_index(axis) == 0
    return lax.psum(jnp.where(first, o, 0), axis).astype(q.dtype)


@wrong("values")
def shards_weighed_by_lse(q, k, v, *, axis):
    o, lse = attend(lax.pcast(q, axis, to="varying"), k, v)
    return (lax.psum(o * lse[..., None], axis) / lax.psum(lse, axis)[..., None]).astype(q.dtype)


@wrong("values")
def shards_on_several_devices(q, k, v, *, axis):
    if lax.axis_size(axis) == 1:
        raise ValueError("one device")
    return shards_in_one_message(q, k, v, axis=axis)


@wrong("communication")
def shards_with_scores_gathered(q, k, v, *, axis):
    scores = lax.all_gather(_scores(q, k), axis, axis=3, tiled=True)
    values = lax.all_gather(v, axis, axis=2, tiled=True)
    values = jnp.repeat(values, q.shape[1] // v.shape[1], axis=1)
    weights = jax.nn.softmax(scores)
    y = jnp.einsum("bats,bash->bath", weights, values.astype(jnp.float32))
    return y.astype(q.dtype)
