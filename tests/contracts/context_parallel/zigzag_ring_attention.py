"""Answers to zigzag_ring_attention: right ones by other routes, and wrong ones."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from jaxpar.flash import attend, merge
from tests.contracts.answers import right

NEVER = -1e30


def _refused(q, k):
    if q.shape[2] % 2 or q.shape[1] % k.shape[1]:
        raise ValueError("sizes")


def _zigzag(q, k, v, axis, *, two):
    """`two` makes the two parts of a round: of the earlier queries, and of the later ones."""
    _refused(q, k)
    n, i, c = lax.axis_size(axis), lax.axis_index(axis), q.shape[2] // 2
    low, high = slice(c), slice(c, None)
    triangle = jnp.tril(jnp.ones((c, c), bool))[None]
    first = attend(q[:, :, low], k[:, :, low], v[:, :, low], triangle)
    second = merge(
        attend(q[:, :, high], k[:, :, low], v[:, :, low]),
        attend(q[:, :, high], k[:, :, high], v[:, :, high], triangle),
    )

    @partial(jax.checkpoint, prevent_cse=False)
    def one_round(state, r):
        k, v, first, second = state
        k, v = hop(k, axis), hop(v, axis)
        early, late = two(q, k, v, (i - r) % n < i)
        return (k, v, merge(first, early), merge(second, late)), None

    (_, _, first, second), _ = lax.scan(one_round, (k, v, first, second), jnp.arange(1, n))
    return jnp.concatenate([first[0], second[0]], axis=2).astype(q.dtype)


def _half(x, second):
    """One half of the positions, chosen while the program runs."""
    c = x.shape[2] // 2
    return lax.dynamic_slice_in_dim(x, jnp.where(second, c, 0), c, axis=2)


def _by_slices(q, k, v, before):
    later = attend(_half(q, True), _half(k, False), _half(v, False))
    o, lse = attend(*(_half(x, ~before) for x in (q, k, v)))
    early = o, jnp.where(before, lse, NEVER)
    return early, merge(later, (o, jnp.where(before, NEVER, lse)))


def _in_a_batch(q, k, v, before):
    """Both half blocks as one batch."""
    qs = jnp.stack([_half(q, True), _half(q, ~before)])
    ks, vs = (jnp.stack([_half(x, False), _half(x, ~before)]) for x in (k, v))
    o, lse = jax.vmap(attend)(qs, ks, vs)
    low, high = (jnp.where(x, lse[1], NEVER) for x in (before, ~before))
    return (o[1], low), merge((o[0], lse[0]), (o[1], high))


@right
def zigzag_by_slices(q, k, v, *, axis):
    return _zigzag(q, k, v, axis, two=_by_slices)


@right
def zigzag_in_a_batch(q, k, v, *, axis):
    return _zigzag(q, k, v, axis, two=_in_a_batch)


@wrong("values")
def zigzag_on_several_devices(q, k, v, *, axis):
    if lax.axis_size(axis) == 1:
        raise ValueError("one device")
    return zigzag_by_slices(q, k, v, axis=axis)


@wrong("values")
def zigzag_without_a_mask(q, k, v, *, axis):
    return _zigzag(q, k, v, axis, two=lambda q, k, v, _: _by_slices(q, k, v, jnp.bool_(True)))


@wrong("flops")
def zigzag_with_whole_blocks(q, k, v, *, axis):
    """All four half blocks, of which two are thrown away."""

    def two(q, k, v, before):
        c = q.shape[2] // 2
        keys = jnp.arange(2 * c) < c
        low = jnp.broadcast_to(keys & before, (1, c, 2 * c))
        high = jnp.broadcast_to(keys | ~before, (1, c, 2 * c))
        o, lse = attend(q[:, :, :c], k, v, low)
        return (o, jnp.where(before, lse, NEVER)), attend(q[:, :, c:], k, v, high)

    return _zigzag(q, k, v, axis, two=two)


@wrong("flops")
def zigzag_with_products_by_condition(q, k, v, *, axis):
    def two(q, k, v, before):
        late = attend(_half(q, True), _half(k, False), _half(v, False))
        none = jnp.zeros_like(late[0]), jnp.full_like(late[1], NEVER)
        early = lax.cond(
            before, lambda: attend(_half(q, False), _half(k, False), _half(v, False)), lambda: none
        )
        other = lax.cond(
            before, lambda: none, lambda: attend(_half(q, True), _half(k, True), _half(v, True))
        )
        return early, merge(late, other)

    return _zigzag(q, k, v, axis, two=two)
