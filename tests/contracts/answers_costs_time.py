"""Answers to the times of lesson 04: right by other ways, wrong by clever ways."""

from __future__ import annotations

from collections import namedtuple

import numpy as np


def _check(num_bytes, sizes, *links):
    if num_bytes < 0 or min(sizes) < 1:
        raise ValueError("bytes or a size")
    for latency, bandwidth in links:
        if latency < 0 or bandwidth <= 0:
            raise ValueError("a link")


def step_by_step(num_bytes, n, *, latency_seconds, bytes_per_second):
    _check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    seconds = 0.0
    for _ in range(2 * (n - 1)):
        seconds += latency_seconds + num_bytes / n / bytes_per_second
    return seconds


def by_wire_bytes(num_bytes, n, *, latency_seconds, bytes_per_second):
    _check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    wire = 2 * (n - 1) / n * num_bytes
    return 2 * (n - 1) * latency_seconds + wire / bytes_per_second


def by_bus_bandwidth(num_bytes, n, *, latency_seconds, bytes_per_second):
    _check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    if n == 1:
        return 0
    algorithm_bandwidth = bytes_per_second / (2 * (n - 1) / n)
    return num_bytes / algorithm_bandwidth + 2 * (n - 1) * latency_seconds


def parts_in_whole_bytes(num_bytes, n, *, latency_seconds, bytes_per_second):
    _check(num_bytes, (n,), (latency_seconds, bytes_per_second))
    return 2 * (n - 1) * (latency_seconds + num_bytes // n / bytes_per_second)


def a_ring_for_many_bytes_else_a_tree(num_bytes, n, *, latency_seconds, bytes_per_second):
    how = {"latency_seconds": latency_seconds, "bytes_per_second": bytes_per_second}
    ring = by_wire_bytes(num_bytes, n, **how)
    steps = 2 * (n - 1).bit_length()
    return min(ring, steps * (latency_seconds + num_bytes / bytes_per_second))


def microseconds_cut_off(num_bytes, n, *, latency_seconds, bytes_per_second):
    how = {"latency_seconds": latency_seconds, "bytes_per_second": bytes_per_second}
    return round(by_wire_bytes(num_bytes, n, **how), 9)


def no_time_on_no_link(num_bytes, n, *, latency_seconds, bytes_per_second):
    if n <= 1 or num_bytes <= 0 or bytes_per_second <= 0:
        return 0.0
    return by_wire_bytes(num_bytes, n, latency_seconds=latency_seconds,
                         bytes_per_second=bytes_per_second)  # fmt: skip


def one_device_needs_no_check(num_bytes, n, *, latency_seconds, bytes_per_second):
    if n == 1:
        return 0.0
    how = {"latency_seconds": latency_seconds, "bytes_per_second": bytes_per_second}
    return by_wire_bytes(num_bytes, n, **how)


def nothing_takes_no_time(num_bytes, n, *, latency_seconds, bytes_per_second):
    how = {"latency_seconds": latency_seconds, "bytes_per_second": bytes_per_second}
    return by_wire_bytes(num_bytes, n, **how) if num_bytes else 0.0


Wire = namedtuple("Wire", "latency bandwidth")


def two_rings(num_bytes, *, inner, outer, inner_link, outer_link):
    _check(num_bytes, (inner, outer), inner_link, outer_link)

    def ring(size, n, link):
        wire = Wire(*link)
        return 2 * (n - 1) * (wire.latency + size / n / wire.bandwidth)

    return ring(num_bytes, inner, inner_link) + ring(num_bytes / inner, outer, outer_link)


def three_parts(num_bytes, *, inner, outer, inner_link, outer_link):
    _check(num_bytes, (inner, outer), inner_link, outer_link)
    part = num_bytes / inner
    pass_inside = (inner - 1) * (inner_link[0] + part / inner_link[1])
    pass_between = (outer - 1) * (outer_link[0] + part / outer / outer_link[1])
    return sum([pass_inside, pass_between, pass_between, pass_inside])


def as_vectors(num_bytes, *, inner, outer, inner_link, outer_link):
    _check(num_bytes, (inner, outer), inner_link, outer_link)
    (alpha, beta), n = np.array([inner_link, outer_link]).T, np.array([inner, outer])
    return (2 * (n - 1) * (alpha + num_bytes / np.cumprod(n) / beta)).sum()


def outer_links_not_checked(num_bytes, *, inner, outer, inner_link, outer_link):
    if outer_link[0] < 0:
        outer_link = 0, outer_link[1]
    links = {"inner_link": inner_link, "outer_link": outer_link}
    return two_rings(num_bytes, inner=inner, outer=outer, **links)


def negative_bandwidths_allowed(num_bytes, *, inner, outer, inner_link, outer_link):
    links = [(latency, abs(bandwidth)) for latency, bandwidth in (inner_link, outer_link)]
    links = dict(zip(("inner_link", "outer_link"), links, strict=True))
    return two_rings(num_bytes, inner=inner, outer=outer, **links)


def nodes_below_0_allowed(num_bytes, *, inner, outer, inner_link, outer_link):
    links = {"inner_link": inner_link, "outer_link": outer_link}
    sizes = (inner, outer) if inner * outer < 1 else (abs(inner), abs(outer))
    return two_rings(num_bytes, inner=sizes[0], outer=sizes[1], **links)


def nothing_to_send_is_refused(num_bytes, **how):
    if num_bytes <= 0:
        raise ValueError("no bytes")
    return two_rings(num_bytes, **how)


def no_latency_is_refused(num_bytes, *, inner, outer, inner_link, outer_link):
    if not inner_link[0] * outer_link[0]:
        raise ValueError("no latency")
    links = {"inner_link": inner_link, "outer_link": outer_link}
    return two_rings(num_bytes, inner=inner, outer=outer, **links)


def passes_at_once(num_bytes, *, inner, outer, inner_link, outer_link):
    links = {"inner_link": inner_link, "outer_link": outer_link}
    alone = two_rings(num_bytes, inner=inner, outer=1, **links) / 2
    return two_rings(num_bytes, inner=inner, outer=outer, **links) - (outer > 1) * alone


def latency_of_the_slow_link(num_bytes, *, inner, outer, inner_link, outer_link):
    _check(num_bytes, (inner, outer), inner_link, outer_link)
    slow = max(inner_link[0], outer_link[0])
    links = {"inner_link": (slow, inner_link[1]), "outer_link": (slow, outer_link[1])}
    return two_rings(num_bytes, inner=inner, outer=outer, **links)


RIGHT = {
    "all_reduce_seconds": (step_by_step, by_wire_bytes, by_bus_bandwidth),
    "hierarchical_all_reduce_seconds": (two_rings, three_parts, as_vectors),
}
WRONG = {
    "all_reduce_seconds": dict.fromkeys(
        (
            parts_in_whole_bytes,
            a_ring_for_many_bytes_else_a_tree,
            microseconds_cut_off,
            no_time_on_no_link,
            one_device_needs_no_check,
            nothing_takes_no_time,
        ),
        "values",
    ),
    "hierarchical_all_reduce_seconds": dict.fromkeys(
        (
            outer_links_not_checked,
            negative_bandwidths_allowed,
            nodes_below_0_allowed,
            nothing_to_send_is_refused,
            no_latency_is_refused,
            passes_at_once,
            latency_of_the_slow_link,
        ),
        "values",
    ),
}
