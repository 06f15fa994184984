"""Answers to max_batch_that_fits: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def by_floor_division(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or device_bytes < 0 or state_bytes < 0:
        raise ValueError
    free = device_bytes - state_bytes
    return int(free // bytes_per_example) if free > 0 else 0


@right
def by_divmod(device_bytes, state_bytes, bytes_per_example):
    if not (bytes_per_example > 0 and min(device_bytes, state_bytes) >= 0):
        raise ValueError
    count, _ = divmod(max(device_bytes, state_bytes) - state_bytes, bytes_per_example)
    return int(count)


@right
def by_floor_of_a_float(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or min(device_bytes, state_bytes) < 0:
        raise ValueError
    return max(0, math.floor((device_bytes - state_bytes) / bytes_per_example))


@right
def by_truncation(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or device_bytes < 0 or state_bytes < 0:
        raise ValueError
    return max(int((device_bytes - state_bytes) / bytes_per_example), 0)


@right
def by_halving(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or min(device_bytes, state_bytes) < 0:
        raise ValueError
    low, high = 0, 2**60
    while high - low > 1:
        middle = (low + high) // 2
        if state_bytes + middle * bytes_per_example <= device_bytes:
            low = middle
        else:
            high = middle
    return low


@right
def in_fractions(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or device_bytes < 0 or state_bytes < 0:
        raise ValueError
    free = Fraction(device_bytes) - Fraction(state_bytes)
    return max(0, math.floor(free / Fraction(bytes_per_example)))


@right
def in_integers_of_numpy(device_bytes, state_bytes, bytes_per_example):
    if min(device_bytes, state_bytes) < 0 or not bytes_per_example > 0:
        raise ValueError
    count = np.floor_divide(device_bytes - state_bytes, bytes_per_example)
    return np.maximum(count, 0).astype(np.int64)


@wrong("values")
def a_byte_at_least(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example < 1 or device_bytes < 0 or state_bytes < 0:
        raise ValueError
    return max(int((device_bytes - state_bytes) / bytes_per_example), 0)


@wrong("values")
def division_refuses(device_bytes, state_bytes, bytes_per_example):
    return max(0, (device_bytes - state_bytes) // bytes_per_example)


@wrong("values")
def size_of_what_is_left(device_bytes, state_bytes, bytes_per_example):
    by_divmod(device_bytes, state_bytes, bytes_per_example)
    return abs(device_bytes - state_bytes) // bytes_per_example


@wrong("values")
def at_most_4096(device_bytes, state_bytes, bytes_per_example):
    return min(4096, by_divmod(device_bytes, state_bytes, bytes_per_example))


@wrong("values")
def multiples_of_8(device_bytes, state_bytes, bytes_per_example):
    batch = by_divmod(device_bytes, state_bytes, bytes_per_example)
    return batch // 8 * 8 if batch > 8 else batch


@wrong("values")
def none_if_none(device_bytes, state_bytes, bytes_per_example):
    return by_divmod(device_bytes, state_bytes, bytes_per_example) or None


@wrong("values")
def as_a_float_of_numpy(device_bytes, state_bytes, bytes_per_example):
    return np.float64(by_divmod(device_bytes, state_bytes, bytes_per_example))


@wrong("values")
def zero_before_the_division(device_bytes, state_bytes, bytes_per_example):
    if device_bytes < 0 or state_bytes < 0:
        raise ValueError
    if state_bytes + bytes_per_example > device_bytes:
        return 0
    if bytes_per_example <= 0:
        raise ValueError
    return int((device_bytes - state_bytes) // bytes_per_example)


@wrong("values")
def at_most_a_million(device_bytes, state_bytes, bytes_per_example):
    return min(10**6, by_halving(device_bytes, state_bytes, bytes_per_example))


@wrong("values")
def a_state_at_least(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or device_bytes < 0 or state_bytes <= 0:
        raise ValueError
    return by_divmod(device_bytes, state_bytes, bytes_per_example)


@wrong("values")
def refused_by_the_batch(device_bytes, state_bytes, bytes_per_example):
    if not bytes_per_example:
        raise ValueError
    batch = int((device_bytes - state_bytes) // bytes_per_example)
    if batch < 0 and (bytes_per_example < 0 or device_bytes < 0):
        raise ValueError
    return max(0, batch)


@wrong("values")
def bytes_counted_whole(device_bytes, state_bytes, bytes_per_example):
    by_divmod(device_bytes, state_bytes, bytes_per_example)
    sizes = device_bytes, state_bytes, max(bytes_per_example, 1)
    return by_divmod(*map(int, sizes))


@wrong("values")
def states_of_80_gb_at_most(device_bytes, state_bytes, bytes_per_example):
    held = state_bytes if device_bytes < 80 * 10**9 else min(state_bytes, 80 * 10**9)
    return by_divmod(device_bytes, held, bytes_per_example)


@wrong("values")
def in_float32_of_jax(device_bytes, state_bytes, bytes_per_example):
    if bytes_per_example <= 0 or min(device_bytes, state_bytes) < 0:
        raise ValueError
    return max(0, int(jnp.floor((device_bytes - state_bytes) / bytes_per_example)))
