"""Answers to parallel_attention: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter, gathered
from tests.contracts.answers import right


def _check(heads, kv_heads, n):
    if heads % n or (kv_heads % n and n % kv_heads):
        raise ValueError(f"{heads} heads and {kv_heads} kv heads on {n} devices")


def _own_columns(w, kv_heads, h, axis):
    n = lax.axis_size(axis)
    if kv_heads >= n:
        return w
    return w.reshape(len(w), kv_heads, h)[:, lax.axis_index(axis) // (n // kv_heads)]


def _attend(q, k, v):
    """[b, t, heads, h] with [b, t, kv heads, h] to [b, t, heads*h]."""
    (b, t, _, h), kv = q.shape, k.shape[2]
    scores = jnp.einsum("btkgh,bskh->bkgts", q.reshape(b, t, kv, -1, h), k) * h**-0.5
    scores += jnp.triu(jnp.full((t, t), -1e30, scores.dtype), 1)[None, None, None]
    return jnp.einsum("bkgts,bskh->btkgh", jax.nn.softmax(scores), v).reshape(b, t, -1)


def _split_heads(y, h):
    return y.reshape(*y.shape[:2], -1, h)


def _projected(y, w_o, h, axis):
    return lax.psum(y @ w_o, axis)


def _attention(
    x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis,
    own_columns=_own_columns, attend=_attend, project=_projected, check=_check,
):  # fmt: skip
    n = lax.axis_size(axis)
    check(num_heads, num_kv_heads, n)
    h, x = w_q.shape[1] * n // num_heads, enter(x, axis)
    k, v = (x @ own_columns(w, num_kv_heads, h, axis) for w in (w_k, w_v))
    q, k, v = (_split_heads(y, h) for y in (x @ w_q, k, v))
    return project(attend(q, k, v), w_o, h, axis)


@right
def attended_by_groups(x, *weights, **sizes):
    return _attention(x, *weights, **sizes)


@right
def attended_by_jax(x, *weights, **sizes):
    def attend(q, k, v):
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return y.reshape(*y.shape[:2], -1)

    return _attention(x, *weights, **sizes, attend=attend)


@right
def attended_with_keys_by_one_hot(x, *weights, **sizes):
    def own_columns(w, kv_heads, h, axis):
        n = lax.axis_size(axis)
        if kv_heads >= n:
            return w
        own = jax.nn.one_hot(lax.axis_index(axis) * kv_heads // n, kv_heads, dtype=w.dtype)
        return jnp.einsum("dkh,k->dh", w.reshape(len(w), kv_heads, h), own)

    return _attention(x, *weights, **sizes, own_columns=own_columns)


@right
def attended_with_keys_by_switch(x, *weights, **sizes):
    def own_columns(w, kv_heads, h, axis):
        n = lax.axis_size(axis)
        if kv_heads >= n:
            return w
        parts = jnp.split(enter(w, axis), kv_heads, axis=1)
        branches = [lambda part=part: part for part in parts]
        return lax.switch(lax.axis_index(axis) * kv_heads // n, branches)

    return _attention(x, *weights, **sizes, own_columns=own_columns)


@right
def attended_in_one_product(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    n = lax.axis_size(axis)
    _check(num_heads, num_kv_heads, n)
    h = w_q.shape[1] * n // num_heads
    w_k, w_v = (_own_columns(w, num_kv_heads, h, axis) for w in (w_k, w_v))
    product = x @ jnp.concatenate([w_q, w_k, w_v], axis=1)
    parts = jnp.split(product, [w_q.shape[1], w_q.shape[1] + w_k.shape[1]], axis=-1)
    y = _attend(*(_split_heads(part, h) for part in parts))
    return lax.psum(y @ w_o, axis)


@right
def attended_with_all_keys_computed(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    """More products than needed, and no byte more: the gradients of whole matrices are summed."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    _check(num_heads, num_kv_heads, n)
    h, x = w_q.shape[1] * n // num_heads, enter(x, axis)
    q, k, v = (_split_heads(x @ w, h) for w in (w_q, w_k, w_v))
    if num_kv_heads < n:
        k, v = (lax.dynamic_slice_in_dim(y, i * num_kv_heads // n, 1, 2) for y in (k, v))
    return lax.psum(_attend(q, k, v) @ w_o, axis)


@wrong("values")
def attended_in_bfloat16(x, *weights, **sizes):
    def attend(q, k, v):
        return _attend(q, k.astype(jnp.bfloat16).astype(q.dtype), v)

    return _attention(x, *weights, **sizes, attend=attend)


@wrong("values")
def few_kv_heads_refused(x, *weights, **sizes):
    def check_as_megatron(heads, kv_heads, n):
        if heads % n or kv_heads % n:
            raise ValueError("heads")

    return _attention(x, *weights, **sizes, check=check_as_megatron)


@wrong("values")
def attended_with_whole_mesh_index(x, *weights, **sizes):
    def own_columns(w, kv_heads, h, axis):
        axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
        head = lax.axis_index(axes) * kv_heads // lax.axis_size(axes)
        few = kv_heads < lax.axis_size(axis)
        return lax.dynamic_slice_in_dim(w, head * h, h, axis=1) if few else w

    return _attention(x, *weights, **sizes, own_columns=own_columns)


@wrong("gradient")
def attended_with_fixed_scores(x, *weights, **sizes):
    def attend(q, k, v):
        return _attend(lax.stop_gradient(q), k, v)

    return _attention(x, *weights, **sizes, attend=attend)


@wrong("communication")
def attended_and_summed_head_by_head(x, *weights, **sizes):
    def project(y, w_o, h, axis):
        heads = zip(jnp.split(y, y.shape[-1] // h, -1), jnp.split(w_o, len(w_o) // h), strict=True)
        return sum(lax.psum(part @ rows, axis) for part, rows in heads)

    return _attention(x, *weights, **sizes, project=project)


@wrong("communication")
def attended_heads_gathered(x, *weights, **sizes):
    def project(y, w_o, h, axis):
        return gathered(y, axis, 2) @ gathered(w_o, axis)

    return _attention(x, *weights, **sizes, project=project)


@wrong("communication")
def attended_with_keys_computed_in_parts(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    """With few kv heads each device computes them for some positions, and gathers the rest."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    _check(num_heads, num_kv_heads, n)
    h, (b, t, d), x = w_q.shape[1] * n // num_heads, x.shape, enter(x, axis)
    if num_kv_heads < n:
        rows = jnp.pad(x.reshape(b * t, d), ((0, -b * t % n), (0, 0)))
        own_rows = lax.dynamic_slice_in_dim(rows, i * (len(rows) // n), len(rows) // n)
        both = gathered(own_rows @ jnp.concatenate([w_k, w_v], axis=1), axis)
        k, v = jnp.split(both[: b * t].reshape(b, t, -1), 2, axis=-1)
        start = i * num_kv_heads // n * h
        k, v = (lax.dynamic_slice_in_dim(y, start, h, 2) for y in (k, v))
    else:
        k, v = x @ w_k, x @ w_v
    y = _attend(*(_split_heads(y, h) for y in (x @ w_q, k, v)))
    return lax.psum(y @ w_o, axis)


@wrong("errors")
def sizes_asserted(x, *weights, **sizes):
    def check(heads, kv_heads, n):
        assert heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)

    return _attention(x, *weights, **sizes, check=check)


@wrong("errors")
def only_heads_checked(x, *weights, **sizes):
    def check(heads, kv_heads, n):
        if heads % n:
            raise ValueError("heads")

    return _attention(x, *weights, **sizes, check=check)


@wrong("errors")
def only_few_checked(x, *weights, **sizes):
    def check(heads, kv_heads, n):
        if heads % n or (kv_heads < n and n % kv_heads):
            raise ValueError("heads")

    return _attention(x, *weights, **sizes, check=check)


def _by_powers(scores, largest):
    """Softmax of the past by exp, after `largest` of the scores is subtracted."""
    past = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    past = past.reshape(*[1] * (scores.ndim - 2), *past.shape)
    masked = jnp.where(past, scores, -jnp.inf)
    powers = jnp.exp(masked - lax.stop_gradient(largest(masked)))
    return powers / powers.sum(-1, keepdims=True)


def _attended_by_powers(x, weights, sizes, largest):
    def attend(q, k, v):
        (b, t, _, h), kv = q.shape, k.shape[2]
        scores = jnp.einsum("btkgh,bskh->bkgts", q.reshape(b, t, kv, -1, h), k) / h**0.5
        by_powers = _by_powers(scores, largest)
        return jnp.einsum("bkgts,bskh->btkgh", by_powers, v).reshape(b, t, -1)

    return _attention(x, *weights, **sizes, attend=attend)


@right
def attended_by_powers_of_differences(x, *weights, **sizes):
    return _attended_by_powers(x, weights, sizes, lambda scores: scores.max(-1, keepdims=True))


@wrong("values")
def neighbours_in_threes(x, *weights, **sizes):
    """Right where n is three times `num_kv_heads`."""

    def own_columns(w, kv_heads, h, axis):
        if kv_heads >= lax.axis_size(axis):
            return w
        return lax.dynamic_slice_in_dim(w, lax.axis_index(axis) // 3 * h, h, axis=1)

    return _attention(x, *weights, **sizes, own_columns=own_columns)


@wrong("values")
def attended_in_float32(x, *weights, **sizes):
    x, *weights = (y.astype(jnp.float32) for y in (x, *weights))
    return _attention(x, *weights, **sizes)


@wrong("communication")
def attended_and_summed_in_float32(x, *weights, **sizes):
    wide = (y.astype(jnp.float32) for y in (x, *weights))
    return _attention(*wide, **sizes).astype(x.dtype)


@right
def attended_with_scores_in_float32(x, *weights, **sizes):
    def attend(q, k, v):
        return _attend(*(y.astype(jnp.float32) for y in (q, k, v))).astype(x.dtype)

    return _attention(x, *weights, **sizes, attend=attend)


@wrong("values")
def one_device_refused(x, *weights, **sizes):
    def check(heads, kv_heads, n):
        _check(heads, kv_heads, n)
        if n == 1:
            raise ValueError("nothing to split")

    return _attention(x, *weights, **sizes, check=check)


@wrong("values")
def attended_of_at_most_four_heads(x, *weights, **sizes):
    def attend(q, k, v):
        h = q.shape[-1]
        return _attend(q, k, v) * (jnp.arange(q.shape[2] * h) < 4 * h)

    return _attention(x, *weights, **sizes, attend=attend)


@wrong("flops")
def attended_with_all_queries(x, w_q, w_k, w_v, w_o, **sizes):
    """Each device multiplies by the queries' columns of all devices, and cuts its own out."""
    n, i = lax.axis_size(sizes["axis"]), lax.axis_index(sizes["axis"])
    wide = jnp.tile(w_q, (1, n))

    def split_own(y, h):
        own = w_q.shape[1]
        return _split_heads(lax.dynamic_slice_in_dim(y, i * own, own, 2), h)

    _check(sizes["num_heads"], sizes["num_kv_heads"], n)
    h, x = w_q.shape[1] * n // sizes["num_heads"], enter(x, sizes["axis"])
    k, v = (x @ _own_columns(w, sizes["num_kv_heads"], h, sizes["axis"]) for w in (w_k, w_v))
    y = _attend(split_own(x @ wide, h), _split_heads(k, h), _split_heads(v, h))
    return _projected(y, w_o, h, sizes["axis"])


@wrong("values")
def attended_with_a_mask_of_minus_100(x, *weights, **sizes):
    def attend(q, k, v):
        h, groups = q.shape[-1], q.shape[2] // k.shape[2]
        k, v = (jnp.repeat(y, groups, axis=2) for y in (k, v))
        scores = jnp.einsum("btah,bsah->bats", q, k) * h**-0.5
        scores = jnp.where(jnp.tri(x.shape[1], dtype=bool)[None, None], scores, -100)
        y = jnp.einsum("bats,bsah->btah", jax.nn.softmax(scores), v)
        return y.reshape(*y.shape[:2], -1)

    return _attention(x, *weights, **sizes, attend=attend)
