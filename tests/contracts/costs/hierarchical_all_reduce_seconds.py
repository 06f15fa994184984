"""Answers to hierarchical_all_reduce_seconds: right ones by other routes, and wrong ones."""

from __future__ import annotations

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
