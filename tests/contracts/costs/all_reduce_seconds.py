"""Answers to all_reduce_seconds: right ones by other routes, and wrong ones."""

from __future__ import annotations

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
