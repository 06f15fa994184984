"""Answers to hierarchical_all_reduce_seconds: right ones by other routes, and wrong ones."""

from __future__ import annotations

from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right
from tests.contracts.costs.common import check


@right
def two_rings(num_bytes, *, inner, outer, inner_link, outer_link):
    check(num_bytes, (inner, outer), inner_link, outer_link)

    def ring(size, n, link):
        latency, bandwidth = link
        return 2 * (n - 1) * (latency + size / n / bandwidth)

    return ring(num_bytes, inner, inner_link) + ring(num_bytes / inner, outer, outer_link)


@right
def three_parts(num_bytes, *, inner, outer, inner_link, outer_link):
    check(num_bytes, (inner, outer), inner_link, outer_link)
    part = num_bytes / inner
    pass_inside = (inner - 1) * (inner_link[0] + part / inner_link[1])
    pass_between = (outer - 1) * (outer_link[0] + part / outer / outer_link[1])
    return sum([pass_inside, pass_between, pass_between, pass_inside])


@right
def as_vectors(num_bytes, *, inner, outer, inner_link, outer_link):
    check(num_bytes, (inner, outer), inner_link, outer_link)
    (alpha, beta), n = np.array([inner_link, outer_link]).T, np.array([inner, outer])
    return (2 * (n - 1) * (alpha + num_bytes / np.cumprod(n) / beta)).sum()


@right
def in_fractions(num_bytes, *, inner, outer, inner_link, outer_link):
    check(num_bytes, (inner, outer), inner_link, outer_link)
    part, seconds = Fraction(num_bytes), 0
    for n, (latency, bandwidth) in ((inner, inner_link), (outer, outer_link)):
        part /= n
        seconds += 2 * (n - 1) * (Fraction(latency) + part / Fraction(bandwidth))
    return float(seconds)


@right
def by_bus_factors(num_bytes, *, inner, outer, inner_link, outer_link):
    check(num_bytes, (inner, outer), inner_link, outer_link)
    latencies = (inner - 1) * inner_link[0] + (outer - 1) * outer_link[0]
    inside = (1 - 1 / inner) * num_bytes / inner_link[1]
    between = (1 - 1 / outer) * num_bytes / inner / outer_link[1]
    return 2 * (latencies + inside + between)


@wrong("values")
def outer_links_not_checked(num_bytes, *, outer_link, **how):
    latency, bandwidth = outer_link
    return two_rings(num_bytes, outer_link=(max(latency, 0), bandwidth), **how)


@wrong("values")
def negative_bandwidths_allowed(num_bytes, *, inner_link, outer_link, **how):
    inside, between = ((latency, abs(bandwidth)) for latency, bandwidth in (inner_link, outer_link))
    return two_rings(num_bytes, inner_link=inside, outer_link=between, **how)


@wrong("values")
def nodes_below_0_allowed(num_bytes, *, inner, outer, **links):
    if inner * outer >= 1:
        inner, outer = abs(inner), abs(outer)
    return two_rings(num_bytes, inner=inner, outer=outer, **links)


@wrong("values")
def nothing_to_send_is_refused(num_bytes, **how):
    if num_bytes <= 0:
        raise ValueError("no bytes")
    return two_rings(num_bytes, **how)


@wrong("values")
def no_latency_is_refused(num_bytes, *, inner_link, outer_link, **sizes):
    if not inner_link[0] * outer_link[0]:
        raise ValueError("no latency")
    return two_rings(num_bytes, inner_link=inner_link, outer_link=outer_link, **sizes)


@wrong("values")
def passes_at_once(num_bytes, *, inner, outer, **links):
    alone = two_rings(num_bytes, inner=inner, outer=1, **links) / 2
    return two_rings(num_bytes, inner=inner, outer=outer, **links) - (outer > 1) * alone


@wrong("values")
def latency_of_the_slow_link(num_bytes, *, inner, outer, inner_link, outer_link):
    check(num_bytes, (inner, outer), inner_link, outer_link)
    slow = max(inner_link[0], outer_link[0])
    links = {"inner_link": (slow, inner_link[1]), "outer_link": (slow, outer_link[1])}
    return two_rings(num_bytes, inner=inner, outer=outer, **links)


@wrong("values")
def one_ring_on_equal_links(num_bytes, *, inner, outer, inner_link, outer_link):
    links = {"inner_link": inner_link, "outer_link": outer_link}
    if inner_link == outer_link:
        inner, outer = inner * outer, 1
    return two_rings(num_bytes, inner=inner, outer=outer, **links)


@wrong("values")
def one_ring_on_a_square(num_bytes, *, inner, outer, **links):
    if inner == outer:
        inner, outer = inner * outer, 1
    return two_rings(num_bytes, inner=inner, outer=outer, **links)


@wrong("values")
def at_most_576_devices_in_a_node(num_bytes, *, inner, **how):
    return two_rings(num_bytes, inner=min(inner, 576), **how)


@wrong("values")
def at_most_20_000_nodes(num_bytes, *, outer, **how):
    return two_rings(num_bytes, outer=min(outer, 20_000), **how)


@wrong("values")
def a_byte_at_least(num_bytes, *, inner, outer, inner_link, outer_link):
    check(num_bytes, (inner, outer), inner_link, outer_link)

    def ring(size, n, link):
        latency, bandwidth = link
        return 2 * (n - 1) * (latency + max(size / n, bool(size)) / bandwidth)

    return ring(num_bytes, inner, inner_link) + ring(num_bytes / inner, outer, outer_link)


@wrong("values")
def refused_by_the_times(num_bytes, *, inner, outer, inner_link, outer_link):
    if min(inner, outer) < 1 or not inner_link[1] or not outer_link[1] or num_bytes < 0:
        raise ValueError
    inside = 2 * (inner - 1) * (inner_link[0] + num_bytes / inner / inner_link[1])
    part = num_bytes / inner
    between = 2 * (outer - 1) * (outer_link[0] + part / outer / outer_link[1])
    if inside < 0 or between < 0:
        raise ValueError
    return inside + between


@wrong("values")
def checked_ring_by_ring(num_bytes, *, inner, outer, inner_link, outer_link):
    def ring(size, n, link):
        if n == 1:
            return 0
        check(size, (n,), link)
        return 2 * (n - 1) * (link[0] + size / n / link[1])

    check(num_bytes, (inner, outer))
    return ring(num_bytes, inner, inner_link) + ring(num_bytes / inner, outer, outer_link)


@wrong("values")
def no_bytes_need_no_check(num_bytes, *, inner, outer, inner_link, outer_link):
    if num_bytes == 0 and min(inner, outer) >= 1:
        inner_link, outer_link = (inner_link[0], 1), (outer_link[0], 1)
    links = {"inner_link": inner_link, "outer_link": outer_link}
    return two_rings(num_bytes, inner=inner, outer=outer, **links)


@wrong("values")
def in_float32_of_jax(num_bytes, **how):
    return jnp.float32(two_rings(num_bytes, **how))
