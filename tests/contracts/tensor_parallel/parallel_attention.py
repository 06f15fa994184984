"""Answers to parallel_attention: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _enter(x, axis):
    return lax.pcast(x, axis, to="varying")


def _check(heads, kv_heads, n):
    if heads % n or (kv_heads % n and n % kv_heads):
        raise ValueError(f"{heads} heads and {kv_heads} kv heads on {n} devices")


def _own(w, kv_heads, h, axis):
    n = lax.axis_size(axis)
    if kv_heads >= n:
        return w
    return w.reshape(len(w), kv_heads, h)[:, lax.axis_index(axis) // (n // kv_heads)]


def _attend(q, k, v):
    """[b, t, heads, h], [b, t, kv heads, h]."""
    (b, t, _, h), kv = q.shape, k.shape[2]
    scores = jnp.einsum("btkgh,bskh->bkgts", q.reshape(b, t, kv, -1, h), k) * h**-0.5
    scores += jnp.triu(jnp.full((t, t), -1e30), 1)[None, None, None]
    return jnp.einsum("bkgts,bskh->btkgh", jax.nn.softmax(scores), v).reshape(b, t, -1)


def _by_steps(own=_own, attend=_attend, total=lax.psum, enter=_enter, check=_check):
    def function(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
        n = lax.axis_size(axis)
        check(num_heads, num_kv_heads, n)
        h, x = w_q.shape[1] * n // num_heads, enter(x, axis)
        k, v = (x @ own(w, num_kv_heads, h, axis) for w in (w_k, w_v))
        q, k, v = (y.reshape(*y.shape[:2], -1, h) for y in (x @ w_q, k, v))
        return total(attend(q, k, v) @ w_o, axis)

    return function


def _named(name, function):
    function.__name__ = name
    return function


attended_by_groups = right(_by_steps())


def _attend_by_jax(q, k, v):
    y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    return y.reshape(*y.shape[:2], -1)


attended_by_jax = right(_by_steps(attend=_attend_by_jax))


def _attend_head_by_head(q, k, v):
    (_, t, heads, h), kv = q.shape, k.shape[2]
    past = jnp.tril(jnp.ones((t, t), bool))[None]
    done = []
    for head in range(heads):
        shared = head * kv // heads
        scores = q[:, :, head] @ k[:, :, shared].mT / jnp.sqrt(h)
        done.append(jax.nn.softmax(jnp.where(past, scores, -jnp.inf)) @ v[:, :, shared])
    return jnp.concatenate(done, axis=-1)


attended_head_by_head = right(_by_steps(attend=_attend_head_by_head))


def _attend_query_by_query(q, k, v):
    """As softmax over those before, one position after another."""
    t, groups = q.shape[1], q.shape[2] // k.shape[2]
    k, v = (jnp.repeat(y, groups, axis=2) for y in (k, v))

    def one(i):
        scores = jnp.einsum("bah,bsah->bas", q[:, i], k) / jnp.sqrt(q.shape[-1])
        weights = jax.nn.softmax(jnp.where(jnp.arange(t)[None, None] <= i, scores, -jnp.inf))
        return jnp.einsum("bas,bsah->bah", weights, v).reshape(len(q), -1)

    return lax.map(one, jnp.arange(t)).swapaxes(0, 1)


attended_query_by_query = right(_by_steps(attend=_attend_query_by_query))


def _own_by_one_hot(w, kv_heads, h, axis):
    n = lax.axis_size(axis)
    if kv_heads >= n:
        return w
    mine = jax.nn.one_hot(lax.axis_index(axis) * kv_heads // n, kv_heads)
    return jnp.einsum("dkh,k->dh", w.reshape(len(w), kv_heads, h), mine)


attended_with_keys_by_one_hot = right(_by_steps(own=_own_by_one_hot))


def _own_by_switch(w, kv_heads, h, axis):
    n = lax.axis_size(axis)
    if kv_heads >= n:
        return w
    parts = jnp.split(_enter(w, axis), kv_heads, axis=1)
    branches = [lambda p=part: p for part in parts]
    return lax.switch(lax.axis_index(axis) * kv_heads // n, branches)


attended_with_keys_by_switch = right(_by_steps(own=_own_by_switch))


@right
def attended_in_one_product(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    n = lax.axis_size(axis)
    _check(num_heads, num_kv_heads, n)
    h = w_q.shape[1] * n // num_heads
    kv = [_own(w, num_kv_heads, h, axis) for w in (w_k, w_v)]
    both = x @ jnp.concatenate([w_q, *kv], axis=1)
    parts = jnp.split(both, [w_q.shape[1], w_q.shape[1] + kv[0].shape[1]], axis=-1)
    y = _attend(*(p.reshape(*p.shape[:2], -1, h) for p in parts))
    return lax.psum(y @ w_o, axis)


@right
def attended_with_all_keys_computed(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    """More products than needed, and no byte more: the gradients of whole matrices are summed."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    _check(num_heads, num_kv_heads, n)
    h, x = w_q.shape[1] * n // num_heads, _enter(x, axis)
    q, k, v = ((x @ w).reshape(*x.shape[:2], -1, h) for w in (w_q, w_k, w_v))
    if num_kv_heads < n:
        k, v = (lax.dynamic_slice_in_dim(y, i * num_kv_heads // n, 1, 2) for y in (k, v))
    return lax.psum(_attend(q, k, v) @ w_o, axis)


def _attend_in_bfloat16(q, k, v):
    return _attend(q, k.astype(jnp.bfloat16).astype(q.dtype), v)


attended_in_bfloat16 = wrong("values")(_by_steps(attend=_attend_in_bfloat16))


def _check_as_megatron(heads, kv_heads, n):
    """Refuses fewer kv heads than devices."""
    if heads % n or kv_heads % n:
        raise ValueError("heads")


few_kv_heads_refused = wrong("values")(_by_steps(check=_check_as_megatron))


@wrong("values")
def attended_with_whole_mesh_index(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    def own(w, kv_heads, h, axis):
        n = lax.axis_size(axis)
        axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
        head = lax.axis_index(axes) * kv_heads // lax.axis_size(axes)
        return w if kv_heads >= n else lax.dynamic_slice_in_dim(w, head * h, h, axis=1)

    sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "axis": axis}
    return _by_steps(own=own)(x, w_q, w_k, w_v, w_o, **sizes)


def _attend_with_fixed_weights(q, k, v):
    return _attend(lax.stop_gradient(q), k, v)


attended_with_fixed_scores = wrong("gradient")(_by_steps(attend=_attend_with_fixed_weights))


@wrong("communication")
def attended_and_summed_head_by_head(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    n = lax.axis_size(axis)
    _check(num_heads, num_kv_heads, n)
    h, x = w_q.shape[1] * n // num_heads, _enter(x, axis)
    k, v = (x @ _own(w, num_kv_heads, h, axis) for w in (w_k, w_v))
    y = _attend(*(y.reshape(*y.shape[:2], -1, h) for y in (x @ w_q, k, v)))
    heads = zip(jnp.split(y, y.shape[-1] // h, -1), jnp.split(w_o, len(w_o) // h), strict=True)
    return sum(lax.psum(part @ rows, axis) for part, rows in heads)


@wrong("communication")
def attended_heads_gathered(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    def total(y, axis):
        return y

    def attend(q, k, v):
        return lax.all_gather(_attend(q, k, v), axis, axis=2, tiled=True)

    whole = lax.all_gather(w_o, axis, tiled=True)
    sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "axis": axis}
    return _by_steps(attend=attend, total=total)(x, w_q, w_k, w_v, whole, **sizes)


@wrong("communication")
def attended_with_keys_shared(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    """With few kv heads each device computes them for some positions, and gathers the rest."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    _check(num_heads, num_kv_heads, n)
    h, (b, t, d), x = w_q.shape[1] * n // num_heads, x.shape, _enter(x, axis)
    k, v = x @ _own(w_k, num_kv_heads, h, axis), x @ _own(w_v, num_kv_heads, h, axis)
    if num_kv_heads < n:
        rows = jnp.pad(x.reshape(b * t, d), ((0, -b * t % n), (0, 0)))
        mine = lax.dynamic_slice_in_dim(rows, i * (len(rows) // n), len(rows) // n)
        both = lax.all_gather(mine @ jnp.concatenate([w_k, w_v], axis=1), axis, tiled=True)
        k, v = jnp.split(both[: b * t].reshape(b, t, -1), 2, axis=-1)
        start = i * num_kv_heads // n * h
        k, v = (lax.dynamic_slice_in_dim(y, start, h, 2) for y in (k, v))
    y = _attend(*(y.reshape(*y.shape[:2], -1, h) for y in (x @ w_q, k, v)))
    return lax.psum(y @ w_o, axis)


@wrong("communication")
def attended_with_x_entered_for_keys(x, w_q, w_k, w_v, w_o, *, num_heads, num_kv_heads, axis):
    n = lax.axis_size(axis)
    _check(num_heads, num_kv_heads, n)
    h, own = w_q.shape[1] * n // num_heads, _enter(x, axis)
    k, v = (own @ _own(w, num_kv_heads, h, axis) for w in (w_k, w_v))
    y = _attend(*(y.reshape(*y.shape[:2], -1, h) for y in (x @ w_q, k, v)))
    return lax.psum(y @ w_o, axis)


def _assert_sizes(heads, kv_heads, n):
    assert heads % n == 0 and (kv_heads % n == 0 or n % kv_heads == 0)


sizes_asserted = wrong("errors")(_by_steps(check=_assert_sizes))


def _check_heads_only(heads, kv_heads, n):
    if heads % n:
        raise ValueError("heads")


only_heads_checked = wrong("errors")(_by_steps(check=_check_heads_only))


def _check_few_only(heads, kv_heads, n):
    if heads % n or (kv_heads < n and n % kv_heads):
        raise ValueError("heads")


only_few_checked = wrong("errors")(_by_steps(check=_check_few_only))
