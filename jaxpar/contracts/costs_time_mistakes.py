"""Wrong answers to the time of an all-reduce, of lesson 04, that people write."""

from __future__ import annotations

from dataclasses import dataclass

from jaxpar.contracts.base import Mistake
from jaxpar.cost.communication import all_reduce_seconds, hierarchical_all_reduce_seconds

Link = tuple[float, float]


def _ring(num_bytes: float, n: int, how: dict, steps: float, sent: float) -> float:
    """So many steps, and bytes that wait for one another."""
    all_reduce_seconds(num_bytes, n, **how)  # raises where it must
    return steps * how["latency_seconds"] + sent / how["bytes_per_second"]


def _sent(num_bytes: float, n: int) -> float:
    return 2 * (n - 1) / n * num_bytes


def _one_pass(num_bytes: float, n: int, **how) -> float:
    return all_reduce_seconds(num_bytes, n, **how) / 2


def _whole_each_step(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, 2 * (n - 1), 2 * (n - 1) * num_bytes)


def _a_step_for_each(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, 2 * n, 2 * num_bytes)


def _own_part_sent(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, 2 * (n - 1), 2 * num_bytes)


def _one_latency(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, 1, _sent(num_bytes, n))


def _no_latency(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, 0, _sent(num_bytes, n))


def _latencies_of_one_pass(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, n - 1, _sent(num_bytes, n))


def _tree(num_bytes: float, n: int, **how) -> float:
    all_reduce_seconds(num_bytes, n, **how)
    steps = 2 * (n - 1).bit_length()
    return _ring(num_bytes, n, how, steps, steps * num_bytes)


def _two_way(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, 2 * (n - 1), _sent(num_bytes, n) / 2)


def _in_bits(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, 2 * (n - 1), 8 * _sent(num_bytes, n))


def _taken_for_bits(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, 2 * (n - 1), _sent(num_bytes, n) / 8)


def _gib_over_gb(num_bytes: float, n: int, **how) -> float:
    return _ring(num_bytes, n, how, 2 * (n - 1), _sent(num_bytes, n) * 1e9 / 2**30)


def _in_milliseconds(num_bytes: float, n: int, **how) -> float:
    return 1e3 * all_reduce_seconds(num_bytes, n, **how)


def _anything_goes(num_bytes: float, n: int, **how) -> float:
    return 2 * (n - 1) * (how["latency_seconds"] + num_bytes / n / how["bytes_per_second"])


def _alone_is_refused(num_bytes: float, n: int, **how) -> float:
    if n == 1:
        raise ValueError("all_reduce_seconds: one device")
    return all_reduce_seconds(num_bytes, n, **how)


def _time(num_bytes: float, n: int, link: Link) -> float:
    return all_reduce_seconds(num_bytes, n, latency_seconds=link[0], bytes_per_second=link[1])


@dataclass(frozen=True)
class _Nodes:
    """The arguments of a call that is not refused."""

    num_bytes: float
    inner: int
    outer: int
    inner_link: Link
    outer_link: Link

    @property
    def inside(self) -> float:
        return _time(self.num_bytes, self.inner, self.inner_link)

    @property
    def between(self) -> float:
        return _time(self.num_bytes / self.inner, self.outer, self.outer_link)


def _nodes(num_bytes: float, how: dict) -> _Nodes:
    hierarchical_all_reduce_seconds(num_bytes, **how)  # raises where it must
    return _Nodes(num_bytes, **how)


def _whole_between(num_bytes: float, **how) -> float:
    nodes = _nodes(num_bytes, how)
    return nodes.inside + _time(num_bytes, nodes.outer, nodes.outer_link)


def _links_swapped(num_bytes: float, *, inner_link: Link, outer_link: Link, **how) -> float:
    return hierarchical_all_reduce_seconds(
        num_bytes, inner_link=outer_link, outer_link=inner_link, **how
    )


def _sizes_swapped(num_bytes: float, *, inner: int, outer: int, **how) -> float:
    return hierarchical_all_reduce_seconds(num_bytes, inner=outer, outer=inner, **how)


def _inside_once(num_bytes: float, **how) -> float:
    nodes = _nodes(num_bytes, how)
    return nodes.inside / 2 + nodes.between


def _between_once(num_bytes: float, **how) -> float:
    nodes = _nodes(num_bytes, how)
    return nodes.inside + nodes.between / 2


def _inside_in_both_passes(num_bytes: float, **how) -> float:
    nodes = _nodes(num_bytes, how)
    return 2 * nodes.inside + nodes.between


def _flat_ring(num_bytes: float, **how) -> float:
    nodes = _nodes(num_bytes, how)
    return _time(num_bytes, nodes.inner * nodes.outer, nodes.outer_link)


def _all_between(num_bytes: float, **how) -> float:
    nodes = _nodes(num_bytes, how)
    part, n = num_bytes / nodes.inner, nodes.inner * nodes.outer
    return nodes.inside + _time(part, n, nodes.outer_link)


def _levels_at_once(num_bytes: float, **how) -> float:
    nodes = _nodes(num_bytes, how)
    return max(nodes.inside, nodes.between)


def _part_of_a_node(num_bytes: float, **how) -> float:
    nodes = _nodes(num_bytes, how)
    return nodes.inside + _time(num_bytes / nodes.outer, nodes.outer, nodes.outer_link)


def _link_of_a_node(num_bytes: float, **how) -> float:
    nodes = _nodes(num_bytes, how)
    latency, bandwidth = nodes.outer_link
    part = num_bytes / nodes.inner
    return nodes.inside + _time(part, nodes.outer, (latency, bandwidth * nodes.inner))


def _scaled(num_bytes: float, how: dict, bandwidth: float = 1, latency: float = 1) -> float:
    """As if both links had other numbers."""
    nodes = _nodes(num_bytes, how)

    def scaled(link: Link) -> Link:
        return latency * link[0], bandwidth * link[1]

    inside = _time(num_bytes, nodes.inner, scaled(nodes.inner_link))
    return inside + _time(num_bytes / nodes.inner, nodes.outer, scaled(nodes.outer_link))


def _both_two_way(num_bytes: float, **how) -> float:
    return _scaled(num_bytes, how, bandwidth=2)


def _both_in_bits(num_bytes: float, **how) -> float:
    return _scaled(num_bytes, how, bandwidth=1 / 8)


def _levels_without_latency(num_bytes: float, **how) -> float:
    return _scaled(num_bytes, how, latency=0)


def _levels_unchecked(num_bytes: float, *, inner, outer, inner_link, outer_link) -> float:
    def ring(size: float, n: int, link: Link) -> float:
        return _anything_goes(size, n, latency_seconds=link[0], bytes_per_second=link[1])

    return ring(num_bytes, inner, inner_link) + ring(num_bytes / inner, outer, outer_link)


ALL_REDUCE_SECONDS = (
    Mistake("seconds_of_one_pass", _one_pass, "values"),
    Mistake("seconds_whole_each_step", _whole_each_step, "values"),
    Mistake("seconds_a_step_for_each", _a_step_for_each, "values"),
    Mistake("seconds_own_part_sent", _own_part_sent, "values"),
    Mistake("seconds_one_latency", _one_latency, "values"),
    Mistake("seconds_no_latency", _no_latency, "values"),
    Mistake("seconds_latency_of_one_pass", _latencies_of_one_pass, "values"),
    Mistake("seconds_both_directions", _two_way, "values"),
    Mistake("seconds_of_a_tree", _tree, "values"),
    Mistake("seconds_in_bits", _in_bits, "values"),
    Mistake("seconds_taken_for_bits", _taken_for_bits, "values"),
    Mistake("seconds_gib_over_gb", _gib_over_gb, "values"),
    Mistake("seconds_in_milliseconds", _in_milliseconds, "values"),
    Mistake("seconds_nothing_refused", _anything_goes, "values"),
    Mistake("seconds_alone_is_refused", _alone_is_refused, "values"),
)
HIERARCHICAL_ALL_REDUCE_SECONDS = (
    Mistake("levels_whole_between", _whole_between, "values"),
    Mistake("levels_links_swapped", _links_swapped, "values"),
    Mistake("levels_sizes_swapped", _sizes_swapped, "values"),
    Mistake("levels_inside_once", _inside_once, "values"),
    Mistake("levels_between_once", _between_once, "values"),
    Mistake("levels_inside_twice_over", _inside_in_both_passes, "values"),
    Mistake("levels_flat_ring", _flat_ring, "values"),
    Mistake("levels_all_between", _all_between, "values"),
    Mistake("levels_at_once", _levels_at_once, "values"),
    Mistake("levels_part_of_a_node", _part_of_a_node, "values"),
    Mistake("levels_link_of_a_node", _link_of_a_node, "values"),
    Mistake("levels_both_directions", _both_two_way, "values"),
    Mistake("levels_in_bits", _both_in_bits, "values"),
    Mistake("levels_without_latency", _levels_without_latency, "values"),
    Mistake("levels_nothing_refused", _levels_unchecked, "values"),
)
