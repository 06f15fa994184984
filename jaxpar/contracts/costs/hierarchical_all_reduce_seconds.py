"""The seconds of an all-reduce on two kinds of links: inside nodes, and between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import ETHERNET, NDR, NVLINK, Link, log_uniform, random_link
from jaxpar.cost.communication import all_reduce_seconds, hierarchical_all_reduce_seconds


def _hierarchies(rng: np.random.Generator) -> list[Call]:
    """Nodes of a data centre, two machines at home, any nodes; then what is refused."""

    def call(num_bytes: float, inner: int, outer: int, inside: Link, between: Link) -> Call:
        sizes = {"inner": inner, "outer": outer}
        return (num_bytes,), sizes | {"inner_link": inside, "outer_link": between}

    fast, slow = (1, 8), (3, 4)
    calls = [call(80, *sizes, fast, slow) for sizes in ((2, 5), (2, 1), (1, 5))]
    calls += [call(10**9, 8, 4, NVLINK, NDR), call(4096, 2, 3, (5e-6, 32e9), ETHERNET)]
    calls += [call(10**9, *sizes, NVLINK, NDR) for sizes in ((8, 1), (1, 8), (1, 1), (6, 7))]
    calls += [call(0, 2, 5, fast, slow), call(80, 2, 5, (0, 8), (0, 4))]
    for _ in range(8):
        sizes = int(rng.integers(2, 73)), int(log_uniform(rng, 2, 2000))
        calls.append(
            call(int(log_uniform(rng, 1, 1e11)), *sizes, random_link(rng), random_link(rng))
        )
    sizes = ((0, 5), (2, -1), (2, 0), (-2, 5), (-2, -5))
    refused = [call(-8, 2, 5, fast, slow), *(call(8, *both, fast, slow) for both in sizes)]
    refused += [call(8, 1, 5, (1, 0), slow), call(8, 2, 1, fast, (1, 0))]
    for link in ((-1, 8), (1, -8), (-1, -8)):
        refused += [call(8, 2, 5, link, slow), call(8, 2, 5, fast, link)]
    return [*calls, *refused]


CONTRACT = Contract(
    kind="value",
    task="return the seconds of three parts together: inside nodes, between them, and inside again",
    reference=hierarchical_all_reduce_seconds,
    oracle=hierarchical_all_reduce_seconds,
    values=_hierarchies,
    hints=(
        "After the reduce-scatter inside its node, how many bytes does a device hold? Between "
        "nodes it all-reduces just those.",
        "A reduce-scatter and an all-gather inside a node take together what an all-reduce takes "
        "there. Between nodes there is an all-reduce of num_bytes / inner, on `outer` devices.",
        "Write a ring's 2 * (n - 1) * (latency + size / n / bandwidth) as a function; add it up "
        "for (num_bytes, inner, inner_link) and (num_bytes / inner, outer, outer_link).",
    ),
    minimal="No less can cross the slow links, and all devices of a node divide it between them.",
    harder="Suppose that a node's devices share one network card. How many bytes per second are "
    "left for each device, and where does a hierarchy still gain?",
)


def _time(num_bytes: float, n: int, link: Link) -> float:
    return all_reduce_seconds(num_bytes, n, latency_seconds=link[0], bytes_per_second=link[1])


@dataclass(frozen=True)
class _Nodes:
    """The arguments of a call that is not refused, and what its parts take."""

    num_bytes: float
    inner: int
    outer: int
    inner_link: Link
    outer_link: Link

    @property
    def inside(self) -> float:
        """The seconds of the two parts inside a node, together."""
        return _time(self.num_bytes, self.inner, self.inner_link)

    @property
    def between(self) -> float:
        """The seconds of the part between nodes."""
        return _time(self.num_bytes / self.inner, self.outer, self.outer_link)


def _nodes(num_bytes: float, how: dict) -> _Nodes:
    hierarchical_all_reduce_seconds(num_bytes, **how)  # raises where it must
    return _Nodes(num_bytes, **how)


@wrong("values")
def levels_whole_between(num_bytes: float, **how) -> float:
    """You let each device send the whole array between nodes, or divide its bandwidth there by
    `inner`; after the reduce-scatter it holds num_bytes / inner, and outer_link is its own."""
    nodes = _nodes(num_bytes, how)
    return nodes.inside + _time(num_bytes, nodes.outer, nodes.outer_link)


@wrong("values")
def levels_links_swapped(num_bytes: float, *, inner_link: Link, outer_link: Link, **how) -> float:
    """You have swapped the links; inner_link is the one inside a node."""
    return hierarchical_all_reduce_seconds(
        num_bytes, inner_link=outer_link, outer_link=inner_link, **how
    )


@wrong("values")
def levels_sizes_swapped(num_bytes: float, *, inner: int, outer: int, **how) -> float:
    """You have swapped the sizes; a node has `inner` devices, and there are `outer` nodes."""
    return hierarchical_all_reduce_seconds(num_bytes, inner=outer, outer=inner, **how)


@wrong("values")
def levels_inside_once(num_bytes: float, **how) -> float:
    """One of the two parts inside a node is missing; there is a reduce-scatter before, and an
    all-gather after."""
    nodes = _nodes(num_bytes, how)
    return nodes.inside / 2 + nodes.between


@wrong("values")
def levels_between_once(num_bytes: float, **how) -> float:
    """You count half of the all-reduce between nodes; it has 2(outer - 1) steps."""
    nodes = _nodes(num_bytes, how)
    return nodes.inside + nodes.between / 2


@wrong("values")
def levels_inside_twice_over(num_bytes: float, **how) -> float:
    """You count two all-reduces inside a node; the reduce-scatter before and the all-gather after
    are one together."""
    nodes = _nodes(num_bytes, how)
    return 2 * nodes.inside + nodes.between


@wrong("values")
def levels_flat_ring(num_bytes: float, **how) -> float:
    """This is one ring over all devices on the slow link; add up the time inside nodes and that
    between them."""
    nodes = _nodes(num_bytes, how)
    return _time(num_bytes, nodes.inner * nodes.outer, nodes.outer_link)


@wrong("values")
def levels_all_between(num_bytes: float, **how) -> float:
    """You let all devices join the ring between nodes; it has `outer` of them, those that hold the
    same part."""
    nodes = _nodes(num_bytes, how)
    part, n = num_bytes / nodes.inner, nodes.inner * nodes.outer
    return nodes.inside + _time(part, n, nodes.outer_link)


@wrong("values")
def levels_at_once(num_bytes: float, **how) -> float:
    """This is the longer of both times; each part waits for the one before, so add them up."""
    nodes = _nodes(num_bytes, how)
    return max(nodes.inside, nodes.between)


@wrong("values")
def levels_part_of_a_node(num_bytes: float, **how) -> float:
    """You reduce num_bytes / outer between nodes; a device's part is num_bytes / inner."""
    nodes = _nodes(num_bytes, how)
    return nodes.inside + _time(num_bytes / nodes.outer, nodes.outer, nodes.outer_link)


@wrong("values")
def levels_link_of_a_node(num_bytes: float, **how) -> float:
    """You multiply the bandwidth between nodes by `inner`, as if outer_link were that of a whole
    node; it is that of one device."""
    nodes = _nodes(num_bytes, how)
    latency, bandwidth = nodes.outer_link
    part = num_bytes / nodes.inner
    return nodes.inside + _time(part, nodes.outer, (latency, bandwidth * nodes.inner))


def _scaled(num_bytes: float, how: dict, *, bandwidth: float = 1, latency: float = 1) -> float:
    """The seconds on links with so many times the bandwidth and the latency."""
    nodes = _nodes(num_bytes, how)

    def scaled(link: Link) -> Link:
        return latency * link[0], bandwidth * link[1]

    inside = _time(num_bytes, nodes.inner, scaled(nodes.inner_link))
    return inside + _time(num_bytes / nodes.inner, nodes.outer, scaled(nodes.outer_link))


@wrong("values")
def levels_both_directions(num_bytes: float, **how) -> float:
    """Sending the bytes takes half as long as it should; a ring sends one way round, so use the
    bandwidths as they are."""
    return _scaled(num_bytes, how, bandwidth=2)


@wrong("values")
def levels_in_bits(num_bytes: float, **how) -> float:
    """You multiply the bytes by 8; the bandwidths are in bytes, too."""
    return _scaled(num_bytes, how, bandwidth=1 / 8)


@wrong("values")
def levels_without_latency(num_bytes: float, **how) -> float:
    """You leave the latencies out; each step has the latency of its link."""
    return _scaled(num_bytes, how, latency=0)


@wrong("values")
def levels_nothing_refused(num_bytes: float, *, inner, outer, inner_link, outer_link) -> float:
    """Raise ValueError for sizes below 1, bandwidths not above 0, and negative bytes or
    latencies."""

    def ring(size: float, n: int, link: Link) -> float:
        latency, bandwidth = link
        return 2 * (n - 1) * (latency + size / n / bandwidth)

    return ring(num_bytes, inner, inner_link) + ring(num_bytes / inner, outer, outer_link)
