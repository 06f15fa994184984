"""The seconds of an all-reduce on two kinds of links: inside nodes, and between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import ETHERNET, NDR, NVLINK, Link, log_spread, random_link
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
    # The same link twice, the slower one inside, as many nodes as devices of one; less than a byte
    # for each device, bytes that are no whole number, and more of everything than there is today.
    calls += [call(80, 2, 5, fast, fast), call(80, 2, 5, slow, fast), call(80, 4, 4, fast, slow)]
    calls += [call(3, 4, 8, NVLINK, NDR), call(10.5, 4, 2, (0.25, 0.5), (0.5, 0.25))]
    calls += [call(10**15, 2048, 10**5, (1e-9, 4e13), (1e-9, 1e10)), call(0, 1, 1, fast, slow)]
    calls += [call(10**15, 2048, 3, (600, 4e13), (900, 1e15)), call(7, 3, 2, (0, 1e15), (0, 2e15))]
    drawn = zip(
        log_spread(rng, 1, 1e12, 8),
        log_spread(rng, 2, 1024, 8),
        log_spread(rng, 2, 2e4, 8),
        strict=True,
    )
    for num_bytes, inner, outer in drawn:
        sizes = int(inner), int(outer)
        calls.append(call(int(num_bytes), *sizes, random_link(rng), random_link(rng)))
    sizes = ((0, 5), (2, -1), (2, 0), (-2, 5), (-2, -5))
    refused = [call(-8, 2, 5, fast, slow), *(call(8, *both, fast, slow) for both in sizes)]
    for link in ((-1, 8), (1, -8), (-1, -8), (1, 0)):
        refused += [call(8, 2, 5, link, slow), call(8, 2, 5, fast, link)]
    # A time that comes to 0 or to more, and links and bytes that are of no use.
    refused += [call(8000, 2, 5, (-1, 8), slow), call(8000, 2, 5, fast, (-1, 8))]
    refused += [call(-8, 2, 5, (1, -8), (1, -4)), call(-8, 1, 1, fast, slow)]
    for link in ((1, 0), (1, -8), (-1, 8)):
        refused += [call(8, 1, 5, link, slow), call(8, 2, 1, fast, link)]
        refused += [call(0, 2, 5, link, slow), call(0, 2, 5, fast, link)]
    refused += [call(0, *both, fast, slow) for both in ((0, 5), (2, 0), (0, 0), (-2, -5))]
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


@wrong("values")
def levels_faster_inside(num_bytes: float, *, inner_link: Link, outer_link: Link, **how) -> float:
    """You take the faster of the two links for that inside a node; take inner_link, whichever is
    faster."""
    slow, fast = sorted([inner_link, outer_link], key=lambda link: link[1])
    return hierarchical_all_reduce_seconds(num_bytes, inner_link=fast, outer_link=slow, **how)


@wrong("values")
def levels_parts_rounded_down(num_bytes: float, **how) -> float:
    """You round the part of a device down to whole bytes; it has num_bytes / inner, so use / in
    place of //."""
    nodes = _nodes(num_bytes, how)
    part = num_bytes // nodes.inner
    return nodes.inside + _time(part, nodes.outer, nodes.outer_link)


@wrong("values")
def levels_unused_not_checked(num_bytes: float, *, inner_link: Link, outer_link: Link, **how):
    """You check a link only where there is something to send over it; raise ValueError first,
    whatever the sizes are."""
    inside = inner_link if how["inner"] != 1 else (0, 1)
    between = outer_link if how["outer"] != 1 else (0, 1)
    return hierarchical_all_reduce_seconds(num_bytes, inner_link=inside, outer_link=between, **how)


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


def _latency_of_each_part(
    num_bytes: float, how: dict, *, between: int, alone: bool = True
) -> float:
    """The seconds with one latency for each part inside, and `between` for the one between nodes.

    Where `alone`, also a single device, or a single node, waits for them.
    """
    nodes = _nodes(num_bytes, how)
    inside = 2 * nodes.inner_link[0] * (alone or nodes.inner > 1)
    outside = between * nodes.outer_link[0] * (alone or nodes.outer > 1)
    return _scaled(num_bytes, how, latency=0) + inside + outside


@wrong("values")
def levels_latency_of_three_parts(num_bytes: float, **how) -> float:
    """You count one latency for each of the three parts; each step of a ring has one, which are
    inner - 1, 2(outer - 1) and inner - 1 steps."""
    return _latency_of_each_part(num_bytes, how, between=1)


@wrong("values")
def levels_latency_of_three_parts_but_alone(num_bytes: float, **how) -> float:
    """You count one latency for each of the three parts that send; each step of a ring has one,
    which are inner - 1, 2(outer - 1) and inner - 1 steps."""
    return _latency_of_each_part(num_bytes, how, between=1, alone=False)


@wrong("values")
def levels_latency_of_four_passes(num_bytes: float, **how) -> float:
    """You count one latency for each pass over a ring; each of its steps has one, which are
    inner - 1 or outer - 1."""
    return _latency_of_each_part(num_bytes, how, between=2)


@wrong("values")
def levels_latency_of_four_passes_but_alone(num_bytes: float, **how) -> float:
    """You count one latency for each pass over a ring that sends; each of its steps has one, which
    are inner - 1 or outer - 1."""
    return _latency_of_each_part(num_bytes, how, between=2, alone=False)


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
