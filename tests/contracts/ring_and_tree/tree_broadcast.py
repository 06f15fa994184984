"""Answers to tree_broadcast: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.ring_and_tree.common import distances
from tests.contracts.answers import right


def _send(x, axis, root, pairs):
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [((a + root) % n, (b + root) % n) for a, b in pairs])


def _replace(x, arrived, axis, root, pairs):
    n = lax.axis_size(axis)
    targets = jnp.array([(b + root) % n for _, b in pairs])
    return jnp.where(jnp.isin(lax.axis_index(axis), targets), arrived, x)


def _by_pairs(x, axis, root, steps):
    for pairs in steps:
        x = _replace(x, _send(x, axis, root, pairs), axis, root, pairs)
    return x


def _far_first(n):
    return [
        [(a, a + half) for a in range(0, n, 2 * half) if a + half < n]
        for half in reversed(distances(n))
    ]


@right
def tree_far_first(x, *, axis, root):
    return _by_pairs(x, axis, root, _far_first(lax.axis_size(axis)))


@right
def tree_from_zeros(x, *, axis, root):
    x = jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))
    for pairs in _far_first(lax.axis_size(axis)):
        x = x + _send(x, axis, root, pairs)
    return x


@right
def tree_all_devices_send(x, *, axis, root):
    n = lax.axis_size(axis)
    place = (lax.axis_index(axis) - root) % n
    for held in distances(n):
        arrived = _send(x, axis, root, [(a, (a + held) % n) for a in range(n)])
        x = jnp.where((place >= held) & (place < 2 * held), arrived, x)
    return x


@right
def tree_towards_lower(x, *, axis, root):
    n, held, steps = lax.axis_size(axis), [0], []
    while len(held) < n:
        pairs = [(a, (a - len(held)) % n) for a in held[: n - len(held)]]
        held += [b for _, b in pairs]
        steps.append(pairs)
    return _by_pairs(x, axis, root, steps)


@right
def tree_by_free_choice(x, *, axis, root):
    n = lax.axis_size(axis)
    held, missing, steps = [root], [j for j in range(n) if j != root], []
    while missing:
        pairs = list(zip(held, missing, strict=False))
        missing = missing[len(pairs) :]
        held += [b for _, b in pairs]
        steps.append(pairs)
    return _by_pairs(x, axis, 0, steps)


@wrong("communication")
def tree_one_step_more(x, *, axis, root):
    n = lax.axis_size(axis)
    x = tree_far_first(x, axis=axis, root=root)
    return _by_pairs(x, axis, root, [[(0, n - 1)]])


@wrong("communication")
def two_trees(x, *, axis, root):
    half = len(x) // 2
    parts = [tree_far_first(part, axis=axis, root=root) for part in (x[:half], x[half:])]
    return jnp.concatenate(parts)


@wrong("communication")
def tree_in_float32(x, *, axis, root):
    return tree_far_first(x.astype(jnp.float32), axis=axis, root=root).astype(x.dtype)


@wrong("communication")
def tree_with_hidden_gather(x, *, axis, root):
    return tree_far_first(x, axis=axis, root=root) + 0 * lax.all_gather(x, axis)[0]


@wrong("communication")
def tree_or_sum(x, *, axis, root):
    is_root = lax.axis_index(axis) == root
    return lax.cond(
        jnp.sum(x.astype(jnp.float32)) > 1e9,
        lambda: lax.pcast(lax.psum(jnp.where(is_root, x, 0 * x), axis), axis, to="varying"),
        lambda: tree_far_first(x, axis=axis, root=root),
    )


@wrong("communication")
def scatters_then_gathers(x, *, axis, root):
    n, flat = lax.axis_size(axis), x.ravel()
    flat = jnp.pad(flat, (0, -x.size % n))
    flat = jnp.where(lax.axis_index(axis) == root, flat, jnp.zeros_like(flat))
    part = lax.psum_scatter(flat, axis, tiled=True)
    return lax.all_gather(part, axis, tiled=True)[: x.size].reshape(x.shape)


@right
def tree_by_selection(x, *, axis, root):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    held, missing = [root], [j for j in range(n) if j != root]
    while missing:
        pairs = list(zip(held, missing, strict=False))
        arrived = lax.ppermute(x, axis, pairs)
        received = jnp.array([any(j == b for _, b in pairs) for j in range(n)])[i]
        x = lax.select(jnp.broadcast_to(received, x.shape), arrived, x)
        held, missing = held + missing[: len(pairs)], missing[len(pairs) :]
    return x


@right
def tree_with_root_in_front(x, *, axis, root):
    n = lax.axis_size(axis)
    order = [root, *range(root), *range(root + 1, n)]
    place = jnp.array([order.index(j) for j in range(n)])[lax.axis_index(axis)]
    for held in distances(n):
        pairs = [(order[p], order[p + held]) for p in range(min(held, n - held))]
        arrived = lax.ppermute(x, axis, pairs)
        x = jnp.where((place >= held) & (place < 2 * held), arrived, x)
    return x


@wrong("values")
def tree_of_what_is_not_zero(x, *, axis, root):
    for pairs in _far_first(lax.axis_size(axis)):
        arrived = _send(x, axis, root, pairs)
        x = jnp.where(arrived != 0, arrived, x)
    return x


@wrong("values")
def tree_of_differences(x, *, axis, root):
    x = jnp.where(lax.axis_index(axis) == root, x, x - x)
    for pairs in _far_first(lax.axis_size(axis)):
        x = x + _send(x, axis, root, pairs)
    return x


@wrong("values")
def tree_by_arithmetic(x, *, axis, root):
    n = lax.axis_size(axis)
    for pairs in _far_first(n):
        targets = jnp.array([(b + root) % n for _, b in pairs])
        received = jnp.isin(lax.axis_index(axis), targets).astype(x.dtype)
        x = (1 - received) * x + received * _send(x, axis, root, pairs)
    return x


@wrong("values")
def tree_of_eight_at_most(x, *, axis, root):
    return _by_pairs(x, axis, root, _far_first(min(lax.axis_size(axis), 8)))


@wrong("values")
def tree_of_last_without_root(x, *, axis, root):
    return tree_far_first(x, axis=axis, root=root or lax.axis_size(axis) - 1)


@wrong("values")
def tree_rounded_to_float32(x, *, axis, root):
    wide = x if x.dtype.itemsize < 4 else x.astype(jnp.float32)
    return tree_far_first(wide, axis=axis, root=root).astype(x.dtype)


@wrong("values")
def tree_over_tp(x, *, axis, root):
    return tree_far_first(x, axis="tp", root=root)


@wrong("values")
def tree_of_several_devices(x, *, axis, root):
    if lax.axis_size(axis) == 1:
        raise ValueError("a tree needs several devices")
    return tree_far_first(x, axis=axis, root=root)
