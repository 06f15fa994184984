"""Answers to the exercises of lesson 03 on trees: right by other ways, wrong by clever ways."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax


def _steps(n):
    return (n - 1).bit_length()


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
    half = 1 << _steps(n)
    steps = []
    while half > 1:
        half //= 2
        steps.append([(a, a + half) for a in range(0, n, 2 * half) if a + half < n])
    return steps


def tree_far_first(x, *, axis, root):
    return _by_pairs(x, axis, root, _far_first(lax.axis_size(axis)))


def tree_from_zeros(x, *, axis, root):
    x = jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))
    for pairs in _far_first(lax.axis_size(axis)):
        x = x + _send(x, axis, root, pairs)
    return x


def tree_all_devices_send(x, *, axis, root):
    n = lax.axis_size(axis)
    place = (lax.axis_index(axis) - root) % n
    for k in range(_steps(n)):
        arrived = _send(x, axis, root, [(a, (a + (1 << k)) % n) for a in range(n)])
        x = jnp.where((place >= 1 << k) & (place < 2 << k), arrived, x)
    return x


def tree_towards_lower(x, *, axis, root):
    n, held, steps = lax.axis_size(axis), [0], []
    while len(held) < n:
        pairs = [(a, (a - len(held)) % n) for a in held[: n - len(held)]]
        held += [b for _, b in pairs]
        steps.append(pairs)
    return _by_pairs(x, axis, root, steps)


def tree_by_free_choice(x, *, axis, root):
    n = lax.axis_size(axis)
    held, missing, steps = [root], [j for j in range(n) if j != root], []
    while missing:
        pairs = list(zip(held, missing, strict=False))
        missing = missing[len(pairs) :]
        held += [b for _, b in pairs]
        steps.append(pairs)
    return _by_pairs(x, axis, 0, steps)


def tree_one_step_more(x, *, axis, root):
    n = lax.axis_size(axis)
    x = tree_far_first(x, axis=axis, root=root)
    return _by_pairs(x, axis, root, [[(0, n - 1)]])


def two_trees(x, *, axis, root):
    half = len(x) // 2
    parts = [tree_far_first(part, axis=axis, root=root) for part in (x[:half], x[half:])]
    return jnp.concatenate(parts)


def tree_in_float32(x, *, axis, root):
    return tree_far_first(x.astype(jnp.float32), axis=axis, root=root).astype(x.dtype)


def tree_with_hidden_gather(x, *, axis, root):
    return tree_far_first(x, axis=axis, root=root) + 0 * lax.all_gather(x, axis)[0]


def tree_or_sum(x, *, axis, root):
    is_root = lax.axis_index(axis) == root
    return lax.cond(
        jnp.sum(x.astype(jnp.float32)) > 1e9,
        lambda: lax.pcast(lax.psum(jnp.where(is_root, x, 0 * x), axis), axis, to="varying"),
        lambda: tree_far_first(x, axis=axis, root=root),
    )


def scatters_then_gathers(x, *, axis, root):
    n, flat = lax.axis_size(axis), x.ravel()
    flat = jnp.pad(flat, (0, -x.size % n))
    flat = jnp.where(lax.axis_index(axis) == root, flat, jnp.zeros_like(flat))
    part = lax.psum_scatter(flat, axis, tiled=True)
    return lax.all_gather(part, axis, tiled=True)[: x.size].reshape(x.shape)


def _power_of_two(axis):
    n = lax.axis_size(axis)
    if 2 ** int(math.log2(n)) != n:
        raise ValueError(f"{n} devices are not a power of two")
    return n


def _swap(x, axis, partner):
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, partner(j) % n) for j in range(n)])


def doubles_far_first(x, *, axis):
    distance = _power_of_two(axis) // 2
    while distance:
        x = x + _swap(x, axis, lambda j, d=distance: j ^ d)
        distance //= 2
    return x


def doubles_by_shifts_back(x, *, axis):
    for k in reversed(range(_steps(_power_of_two(axis)))):
        x += _swap(x, axis, lambda j, k=k: j - 2**k)
    return x


def doubles_by_mirrors(x, *, axis):
    n, block = lax.axis_size(axis), 2
    if n not in (1, 2, 4, 8, 16):
        raise ValueError("n must be 1, 2, 4, 8 or 16")
    while block <= n:
        x = x + _swap(x, axis, lambda j, b=block: j // b * b + b - 1 - j % b)
        block *= 2
    return x


def doubles_without_check(x, *, axis):
    for k in range(_steps(lax.axis_size(axis))):
        x = x + _swap(x, axis, lambda j, k=k: j + 2**k)
    return x


def doubles_with_partners_unchecked(x, *, axis):
    for k in range(_steps(lax.axis_size(axis))):
        x = x + _swap(x, axis, lambda j, k=k: j ^ 2**k)  # JAX refuses its pairs, but only later
    return x


def doubles_by_assert(x, *, axis):
    n = lax.axis_size(axis)
    assert n & (n - 1) == 0
    return doubles_without_check(x, axis=axis)


def doubles_powers_and_sums_others(x, *, axis):
    n = lax.axis_size(axis)
    return lax.psum(x, axis) if n & (n - 1) else doubles_without_check(x, axis=axis)


def halves_then_doubles(x, *, axis):
    n, i = _power_of_two(axis), lax.axis_index(axis)
    flat = jnp.pad(x.ravel(), (0, -x.size % n))
    distances = [n >> k for k in range(1, _steps(n) + 1)]
    for d in distances:
        low, high = jnp.split(flat, 2)
        upper = (i & d) != 0
        sent, kept = jnp.where(upper, low, high), jnp.where(upper, high, low)
        flat = kept + lax.ppermute(sent, axis, [(j, j ^ d) for j in range(n)])
    for d in reversed(distances):
        other = lax.ppermute(flat, axis, [(j, j ^ d) for j in range(n)])
        upper = (i & d) != 0
        flat = jnp.where(upper, jnp.concatenate([other, flat]), jnp.concatenate([flat, other]))
    return flat[: x.size].reshape(x.shape)


def doubles_of_eight(x, *, axis):
    if lax.axis_size(axis) != 8:
        raise ValueError("n must be 8")
    return doubles_far_first(x, axis=axis)


RIGHT = {
    "tree_broadcast": (
        tree_far_first,
        tree_from_zeros,
        tree_all_devices_send,
        tree_towards_lower,
        tree_by_free_choice,
    ),
    "recursive_doubling_all_reduce": (
        doubles_far_first,
        doubles_by_shifts_back,
        doubles_by_mirrors,
    ),
}
WRONG = {
    "tree_broadcast": {
        tree_one_step_more: "communication",
        two_trees: "communication",
        tree_in_float32: "communication",
        tree_with_hidden_gather: "communication",
        tree_or_sum: "communication",
        scatters_then_gathers: "communication",
    },
    "recursive_doubling_all_reduce": {
        doubles_without_check: "errors",
        doubles_with_partners_unchecked: "errors",
        doubles_by_assert: "errors",
        doubles_powers_and_sums_others: "errors",
        halves_then_doubles: "communication",
        doubles_of_eight: "values",
    },
}
