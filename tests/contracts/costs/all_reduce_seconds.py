"""Answers to all_reduce_seconds: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right
from tests.contracts.costs.common import check


@right
def step_by_step(num_bytes, n, *, latency_seconds, bytes_per_second):
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    seconds = 0.0
    for _ in range(2 * (n - 1)):
        seconds += latency_seconds + num_bytes / n / bytes_per_second
    return seconds


@right
def by_wire_bytes(num_bytes, n, *, latency_seconds, bytes_per_second):
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    wire = 2 * (n - 1) / n * num_bytes
    return 2 * (n - 1) * latency_seconds + wire / bytes_per_second


@right
def by_bus_bandwidth(num_bytes, n, *, latency_seconds, bytes_per_second):
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    if n == 1:
        return 0
    algorithm_bandwidth = bytes_per_second / (2 * (n - 1) / n)
    return num_bytes / algorithm_bandwidth + 2 * (n - 1) * latency_seconds


@right
def in_fractions(num_bytes, n, *, latency_seconds, bytes_per_second):
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    step = Fraction(latency_seconds) + Fraction(num_bytes) / n / Fraction(bytes_per_second)
    return float(2 * (n - 1) * step)


@right
def in_float64_of_numpy(num_bytes, n, *, latency_seconds, bytes_per_second):
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    steps = np.full(2, n - 1, np.float64)
    return np.sum(steps * (latency_seconds + np.float64(num_bytes) / n / bytes_per_second))


@wrong("values")
def parts_in_whole_bytes(num_bytes, n, *, latency_seconds, bytes_per_second):
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    return 2 * (n - 1) * (latency_seconds + num_bytes // n / bytes_per_second)


@wrong("values")
def a_ring_for_many_bytes_else_a_tree(num_bytes, n, *, latency_seconds, bytes_per_second):
    link = {"latency_seconds": latency_seconds, "bytes_per_second": bytes_per_second}
    ring = by_wire_bytes(num_bytes, n, **link)
    steps = 2 * (n - 1).bit_length()
    return min(ring, steps * (latency_seconds + num_bytes / bytes_per_second))


@wrong("values")
def microseconds_cut_off(num_bytes, n, **link):
    return round(by_wire_bytes(num_bytes, n, **link), 9)


@wrong("values")
def no_time_on_no_link(num_bytes, n, **link):
    if n <= 1 or num_bytes <= 0 or link["bytes_per_second"] <= 0:
        return 0.0
    return by_wire_bytes(num_bytes, n, **link)


@wrong("values")
def one_device_needs_no_check(num_bytes, n, **link):
    return 0.0 if n == 1 else by_wire_bytes(num_bytes, n, **link)


@wrong("values")
def nothing_takes_no_time(num_bytes, n, **link):
    return by_wire_bytes(num_bytes, n, **link) if num_bytes else 0.0


@wrong("values")
def a_byte_at_least(num_bytes, n, *, latency_seconds, bytes_per_second):
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    part = max(num_bytes / n, 1) if num_bytes else 0
    return 2 * (n - 1) * (latency_seconds + part / bytes_per_second)


@wrong("values")
def bytes_taken_as_an_int(num_bytes, n, **link):
    return by_wire_bytes(math.trunc(num_bytes), n, **link)


@wrong("values")
def at_most_5000_devices(num_bytes, n, **link):
    return by_wire_bytes(num_bytes, min(n, 5000), **link)


@wrong("values")
def a_tree_for_100_000_devices(num_bytes, n, *, latency_seconds, bytes_per_second):
    seconds = by_wire_bytes(
        num_bytes, n, latency_seconds=latency_seconds, bytes_per_second=bytes_per_second
    )
    steps = 2 * (n - 1).bit_length()
    return seconds if n < 100_000 else steps * (latency_seconds + num_bytes / bytes_per_second)


@wrong("values")
def refused_by_the_result(num_bytes, n, *, latency_seconds, bytes_per_second):
    if n == 0 or bytes_per_second == 0:
        raise ValueError
    seconds = 2 * (n - 1) * (latency_seconds + num_bytes / n / bytes_per_second)
    if seconds < 0:
        raise ValueError
    return seconds


@wrong("values")
def refused_by_the_time_of_a_part(num_bytes, n, *, latency_seconds, bytes_per_second):
    if n < 1 or latency_seconds < 0 or not bytes_per_second or num_bytes / bytes_per_second < 0:
        raise ValueError
    return 2 * (n - 1) * (latency_seconds + num_bytes / n / bytes_per_second)


@wrong("values")
def no_bytes_need_no_check(num_bytes, n, *, latency_seconds, bytes_per_second):
    if num_bytes == 0 and n >= 1:
        return 2 * (n - 1) * latency_seconds
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    return 2 * (n - 1) * (latency_seconds + num_bytes / n / bytes_per_second)


@wrong("values")
def links_of_today(num_bytes, n, *, latency_seconds, bytes_per_second):
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    fast = min(bytes_per_second, 1e13)
    return 2 * (n - 1) * (latency_seconds + num_bytes / n / fast)


@wrong("values")
def latency_of_a_second_at_most(num_bytes, n, *, latency_seconds, bytes_per_second):
    slow = min(latency_seconds, 1)
    return by_wire_bytes(num_bytes, n, latency_seconds=slow, bytes_per_second=bytes_per_second)


@wrong("values")
def in_float32_of_jax(num_bytes, n, *, latency_seconds, bytes_per_second):
    check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    part = jnp.float32(num_bytes) / n
    return 2 * (n - 1) * (latency_seconds + part / bytes_per_second)
