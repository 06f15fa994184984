"""The seconds of an all-reduce on two kinds of links: inside nodes, and between them."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong, wrong_result
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


_mistake = partial(wrong_result, hierarchical_all_reduce_seconds)


def _time(
    num_bytes: float, n: int, link: Link, *, latency: float = 1, bandwidth: float = 1
) -> float:
    """The seconds of a ring on a link whose latency and bandwidth are multiplied by these."""
    return all_reduce_seconds(
        num_bytes, n, latency_seconds=latency * link[0], bytes_per_second=bandwidth * link[1]
    )


def _inside(call: SimpleNamespace, **factors: float) -> float:
    """The seconds of the two parts inside a node, together."""
    return _time(call.num_bytes, call.inner, call.inner_link, **factors)


def _between(call: SimpleNamespace, **factors: float) -> float:
    """The seconds of the part between nodes."""
    return _time(call.num_bytes / call.inner, call.outer, call.outer_link, **factors)


levels_whole_between = _mistake(
    "You let each device send the whole array between nodes, or divide its bandwidth there by "
    "`inner`; after the reduce-scatter it holds num_bytes / inner, and outer_link is its own.",
    lambda right, call: _inside(call) + _time(call.num_bytes, call.outer, call.outer_link),
)


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


levels_inside_once = _mistake(
    "One of the two parts inside a node is missing; there is a reduce-scatter before, and an "
    "all-gather after.",
    lambda right, call: _inside(call) / 2 + _between(call),
)
levels_between_once = _mistake(
    "You count half of the all-reduce between nodes; it has 2(outer - 1) steps.",
    lambda right, call: _inside(call) + _between(call) / 2,
)
levels_inside_twice_over = _mistake(
    "You count two all-reduces inside a node; the reduce-scatter before and the all-gather after "
    "are one together.",
    lambda right, call: 2 * _inside(call) + _between(call),
)
levels_flat_ring = _mistake(
    "This is one ring over all devices on the slow link; add up the time inside nodes and that "
    "between them.",
    lambda right, call: _time(call.num_bytes, call.inner * call.outer, call.outer_link),
)
levels_all_between = _mistake(
    "You let all devices join the ring between nodes; it has `outer` of them, those that hold the "
    "same part.",
    lambda right, call: (
        _inside(call) + _time(call.num_bytes / call.inner, call.inner * call.outer, call.outer_link)
    ),
)
levels_at_once = _mistake(
    "This is the longer of both times; each part waits for the one before, so add them up.",
    lambda right, call: max(_inside(call), _between(call)),
)
levels_part_of_a_node = _mistake(
    "You reduce num_bytes / outer between nodes; a device's part is num_bytes / inner.",
    lambda right, call: (
        _inside(call) + _time(call.num_bytes / call.outer, call.outer, call.outer_link)
    ),
)
levels_link_of_a_node = _mistake(
    "You multiply the bandwidth between nodes by `inner`, as if outer_link were that of a whole "
    "node; it is that of one device.",
    lambda right, call: _inside(call) + _between(call, bandwidth=call.inner),
)
levels_both_directions = _mistake(
    "Sending the bytes takes half as long as it should; a ring sends one way round, so use the "
    "bandwidths as they are.",
    lambda right, call: _inside(call, bandwidth=2) + _between(call, bandwidth=2),
)
levels_in_bits = _mistake(
    "You multiply the bytes by 8; the bandwidths are in bytes, too.",
    lambda right, call: _inside(call, bandwidth=1 / 8) + _between(call, bandwidth=1 / 8),
)
levels_without_latency = _mistake(
    "You leave the latencies out; each step has the latency of its link.",
    lambda right, call: _inside(call, latency=0) + _between(call, latency=0),
)


@wrong("values")
def levels_nothing_refused(num_bytes: float, *, inner, outer, inner_link, outer_link) -> float:
    """Raise ValueError for sizes below 1, bandwidths not above 0, and negative bytes or
    latencies."""

    def ring(size: float, n: int, link: Link) -> float:
        latency, bandwidth = link
        return 2 * (n - 1) * (latency + size / n / bandwidth)

    return ring(num_bytes, inner, inner_link) + ring(num_bytes / inner, outer, outer_link)
