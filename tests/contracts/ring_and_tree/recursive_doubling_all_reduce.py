"""Answers to recursive_doubling_all_reduce: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.ring_and_tree.common import distances
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


def _power_of_two(axis):
    n = lax.axis_size(axis)
    if 2 ** int(math.log2(n)) != n:
        raise ValueError(f"{n} devices are not a power of two")
    return n


def _swap(x, axis, partner):
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, partner(j) % n) for j in range(n)])


@right
def doubles_far_first(x, *, axis):
    for distance in reversed(distances(_power_of_two(axis))):
        x = x + _swap(x, axis, lambda j, d=distance: j ^ d)
    return x


@right
def doubles_by_shifts_back(x, *, axis):
    for distance in reversed(distances(_power_of_two(axis))):
        x += hop(x, axis, -distance)
    return x


@right
def doubles_by_mirrors(x, *, axis):
    n, block = lax.axis_size(axis), 2
    if n not in (1, 2, 4, 8, 16):
        raise ValueError("n must be 1, 2, 4, 8 or 16")
    while block <= n:
        x = x + _swap(x, axis, lambda j, b=block: j // b * b + b - 1 - j % b)
        block *= 2
    return x


@wrong("errors")
def doubles_without_check(x, *, axis):
    for distance in distances(lax.axis_size(axis)):
        x = x + hop(x, axis, distance)
    return x


@wrong("errors")
def doubles_with_partners_unchecked(x, *, axis):
    for distance in distances(lax.axis_size(axis)):
        x = x + _swap(x, axis, lambda j, d=distance: j ^ d)  # JAX refuses its pairs, but only later
    return x


@wrong("errors")
def doubles_by_assert(x, *, axis):
    n = lax.axis_size(axis)
    assert n & (n - 1) == 0
    return doubles_without_check(x, axis=axis)


@wrong("errors")
def doubles_powers_and_sums_others(x, *, axis):
    n = lax.axis_size(axis)
    return lax.psum(x, axis) if n & (n - 1) else doubles_without_check(x, axis=axis)


@wrong("communication")
def halves_then_doubles(x, *, axis):
    n, i = _power_of_two(axis), lax.axis_index(axis)
    flat = jnp.pad(x.ravel(), (0, -x.size % n))
    for d in reversed(distances(n)):
        low, high = jnp.split(flat, 2)
        upper = (i & d) != 0
        sent, kept = jnp.where(upper, low, high), jnp.where(upper, high, low)
        flat = kept + lax.ppermute(sent, axis, [(j, j ^ d) for j in range(n)])
    for d in distances(n):
        other = lax.ppermute(flat, axis, [(j, j ^ d) for j in range(n)])
        upper = (i & d) != 0
        flat = jnp.where(upper, jnp.concatenate([other, flat]), jnp.concatenate([flat, other]))
    return flat[: x.size].reshape(x.shape)


@wrong("values")
def doubles_of_eight(x, *, axis):
    if lax.axis_size(axis) != 8:
        raise ValueError("n must be 8")
    return doubles_far_first(x, axis=axis)


@right
def doubles_checked_by_bits(x, *, axis):
    n = lax.axis_size(axis)
    if bin(n).count("1") != 1:
        raise ValueError("use a power of two")
    for distance in distances(n):
        x = jnp.stack([x, hop(x, axis, distance)]).sum(axis=0)
    return x


@right
def doubles_recursively(x, *, axis):
    def summed(x, n):
        if n == 1:
            return x
        if n % 2:
            raise ValueError("use a power of two")
        x = summed(x, n // 2)
        return x + hop(x, axis, n // 2)

    return summed(x, lax.axis_size(axis))


@wrong("errors")
def doubles_unless_three_divides(x, *, axis):
    if lax.axis_size(axis) % 3 == 0:
        raise ValueError("use a power of two")
    return doubles_without_check(x, axis=axis)


@wrong("errors")
def doubles_multiples_of_four(x, *, axis):
    n = lax.axis_size(axis)
    if n > 2 and n % 4:
        raise ValueError("use a power of two")
    return doubles_without_check(x, axis=axis)


@wrong("values")
def doubles_where_no_integers_are(x, *, axis):
    total = jnp.zeros(x.shape)
    for distance in distances(_power_of_two(axis)):
        total = (total + x).astype(x.dtype)
        x = hop(total, axis, distance)
    return (total + x).astype(x.dtype)


@wrong("values")
def doubles_at_least_once(x, *, axis):
    n = _power_of_two(axis)
    x = x + hop(x, axis)
    for distance in distances(n)[1:]:
        x = x + hop(x, axis, distance)
    return x


@wrong("values")
def doubles_by_means(x, *, axis):
    n = _power_of_two(axis)
    for distance in distances(n):
        x = (x + hop(x, axis, distance)) / 2
    return (x * n).astype(x.dtype)


@wrong("values")
def doubles_up_to_three_dims(x, *, axis):
    a, b, c = (*x.shape, 1, 1)[:3]
    return doubles_far_first(x.reshape(a, b, c), axis=axis).reshape(x.shape)


@wrong("communication")
def doubles_bfloat16_in_float32(x, *, axis):
    wide = x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x
    return doubles_far_first(wide, axis=axis).astype(x.dtype)


@wrong("values")
def doubles_three_times_at_most(x, *, axis):
    n = _power_of_two(axis)
    for distance in (1, 2, 4):
        if distance < n:
            x = x + hop(x, axis, distance)
    return x
