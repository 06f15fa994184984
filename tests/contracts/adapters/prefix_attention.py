"""Answers to prefix_attention: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxpar.contracts.base import wrong
from jaxpar.flash import attend, merge
from jaxpar.mesh import vary_alike
from tests.contracts.answers import right


@right
def merged_by_log_sums(q, k, v, prefix_k, prefix_v):
    """Attention to the prefix and to the positions apart."""
    q, k, v, prefix_k, prefix_v = vary_alike(q, k, v, prefix_k, prefix_v)
    b, t = len(q), q.shape[2]
    to_prefix = attend(q, *(jnp.broadcast_to(x[None], (b, *x.shape)) for x in (prefix_k, prefix_v)))
    to_rest = attend(q, k, v, jnp.tril(jnp.ones((1, t, t), bool)))
    return merge(to_prefix, to_rest)[0].astype(q.dtype)


@right
def example_by_example(q, k, v, prefix_k, prefix_v):
    q, k, v, prefix_k, prefix_v = vary_alike(q, k, v, prefix_k, prefix_v)
    kv, p, h = prefix_k.shape
    t = q.shape[2]
    seen = jnp.arange(p + t)[None] <= p + jnp.arange(t)[:, None]

    @jax.vmap
    def one(q, k, v):
        keys = jnp.concatenate([prefix_k, k], axis=1)
        values = jnp.concatenate([prefix_v, v], axis=1)
        groups = q.reshape(kv, -1, t, h).astype(jnp.float32)
        scores = jnp.einsum("kgth,ksh->kgts", groups, keys.astype(jnp.float32)) / h**0.5
        weights = jax.nn.softmax(jnp.where(seen[None, None], scores, -jnp.inf))
        y = jnp.einsum("kgts,ksh->kgth", weights, values.astype(jnp.float32))
        return y.reshape(q.shape).astype(q.dtype)

    return one(q, k, v)


@right
def with_a_bias_of_minus_infinity(q, k, v, prefix_k, prefix_v):
    q, k, v, prefix_k, prefix_v = vary_alike(q, k, v, prefix_k, prefix_v)
    b, a, t, h = q.shape
    p, times = prefix_k.shape[1], a // k.shape[1]
    keys, values = (
        jnp.concatenate([jnp.tile(prefix[None], (b, 1, 1, 1)), x], axis=2)
        for prefix, x in ((prefix_k, k), (prefix_v, v))
    )
    keys, values = (jnp.repeat(x, times, axis=1).astype(jnp.float32) for x in (keys, values))
    bias = jnp.where(jnp.tril(jnp.ones((t, p + t), bool), p), 0.0, -jnp.inf)
    scores = q.astype(jnp.float32) @ keys.mT / h**0.5 + bias[None, None]
    return (jax.nn.softmax(scores) @ values).astype(q.dtype)


@wrong("values")
def of_as_many_kv_heads_as_heads(q, k, v, prefix_k, prefix_v):
    assert q.shape[1] in (k.shape[1], 2 * k.shape[1])
    return merged_by_log_sums(q, k, v, prefix_k, prefix_v)


@wrong("values")
def in_the_precision_of_scores(q, k, v, prefix_k, prefix_v):
    return merged_by_log_sums(q, k, v, prefix_k, prefix_v).astype(jnp.float32)


@wrong("values")
def means_of_both_parts(q, k, v, prefix_k, prefix_v):
    """The weights are half prefix, half positions."""
    q, k, v, prefix_k, prefix_v = vary_alike(q, k, v, prefix_k, prefix_v)
    b, t = len(q), q.shape[2]
    one, _ = attend(q, *(jnp.broadcast_to(x[None], (b, *x.shape)) for x in (prefix_k, prefix_v)))
    other, _ = attend(q, k, v, jnp.tril(jnp.ones((1, t, t), bool)))
    return ((one + other) / 2).astype(q.dtype)


@wrong("values")
def same_prefix_for_all_heads(q, k, v, prefix_k, prefix_v):
    same = (jnp.broadcast_to(x[:1], x.shape) for x in (prefix_k, prefix_v))
    return merged_by_log_sums(q, k, v, *same)


@wrong("values")
def prefix_for_the_first_example(q, k, v, prefix_k, prefix_v):
    with_prefix = merged_by_log_sums(q, k, v, prefix_k, prefix_v)
    without = merged_by_log_sums(q, k, v, prefix_k[:, :0], prefix_v[:, :0])
    return jnp.where(jnp.arange(len(q))[:, None, None, None] == 0, with_prefix, without)


@wrong("flops")
def twice(q, k, v, prefix_k, prefix_v):
    q, k, v, prefix_k, prefix_v = vary_alike(q, k, v, prefix_k, prefix_v)
    one = merged_by_log_sums(q, k, v, prefix_k, prefix_v)
    return jnp.where(
        jnp.isfinite(one), merged_by_log_sums(q + 0 * one, k, v, prefix_k, prefix_v), one
    )
