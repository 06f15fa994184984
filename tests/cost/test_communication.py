"""Bytes of collectives against published values, and each algorithm's time by hand."""

import pytest

from jaxpar.cost.communication import (
    Cost,
    Link,
    all_reduce_seconds,
    crossover_bytes,
    hierarchical_all_reduce_seconds,
    pairwise_all_to_all,
    recursive_doubling_all_gather,
    recursive_doubling_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_all_reduce,
    tree_broadcast,
    tree_reduce,
    two_way_ring_all_gather,
    wire_bytes,
)

LINK = Link(latency_seconds=1e-6, bytes_per_second=1e9)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 256])
def test_wire_bytes_over_tensor_bytes_are_the_bus_factors_of_nccl_tests(n):
    tensor = 4096 * n
    assert wire_bytes("all_reduce", tensor, n) / tensor == pytest.approx(2 * (n - 1) / n)
    assert wire_bytes("reduce_scatter", tensor, n) / tensor == pytest.approx((n - 1) / n)
    assert wire_bytes("all_gather", tensor // n, n) / tensor == pytest.approx((n - 1) / n)
    assert wire_bytes("all_to_all", tensor, n) / tensor == pytest.approx((n - 1) / n)
    assert wire_bytes("broadcast", tensor, n) / tensor == 1
    assert wire_bytes("permute", tensor, n) / tensor == 1


def test_wire_bytes_are_exact():
    big = 2**60 + 8  # float64 cannot hold it
    assert wire_bytes("all_reduce", big, 8) == 2 * 7 * big // 8
    assert isinstance(wire_bytes("all_reduce", 80, 8), int)
    assert wire_bytes("reduce_scatter", 10, 4) == 7.5


@pytest.mark.parametrize(
    ("algorithm", "n", "expected"),
    [
        (ring_all_gather, 5, Cost(4, 400, 400)),
        (two_way_ring_all_gather, 5, Cost(2, 400, 200)),
        (two_way_ring_all_gather, 8, Cost(4, 700, 400)),
        (ring_reduce_scatter, 5, Cost(4, 80, 80)),
        (ring_all_reduce, 5, Cost(8, 160, 160)),
        (pairwise_all_to_all, 5, Cost(4, 80, 80)),
        (tree_broadcast, 5, Cost(3, 300, 300)),
        (tree_broadcast, 8, Cost(3, 300, 300)),
        (tree_reduce, 9, Cost(4, 400, 400)),
        (tree_all_reduce, 9, Cost(8, 800, 800)),
        (recursive_doubling_all_gather, 8, Cost(3, 700, 700)),
        (recursive_doubling_all_reduce, 8, Cost(3, 300, 300)),
    ],
)
def test_steps_and_bytes(algorithm, n, expected):
    cost = algorithm(100, n)
    assert cost == expected
    seconds = expected.steps * 1e-6 + expected.serial_bytes * 1e-9
    assert cost.seconds(LINK) == pytest.approx(seconds)
    assert algorithm(100, 1) == Cost(0, 0, 0)


@pytest.mark.parametrize("n", [4, 8, 1024])
def test_below_the_crossover_fewer_steps_win_and_above_it_fewer_bytes(n):
    size = crossover_bytes(recursive_doubling_all_reduce, ring_all_reduce, n, LINK)
    for factor, doubling_wins in ((0.5, True), (2.0, False)):
        doubling = recursive_doubling_all_reduce(factor * size, n).seconds(LINK)
        ring = ring_all_reduce(factor * size, n).seconds(LINK)
        assert (doubling < ring) == doubling_wins
    at_size = (recursive_doubling_all_reduce(size, n), ring_all_reduce(size, n))
    assert at_size[0].seconds(LINK) == pytest.approx(at_size[1].seconds(LINK))


@pytest.mark.parametrize(
    "algorithm", [recursive_doubling_all_gather, recursive_doubling_all_reduce]
)
def test_recursive_doubling_needs_a_power_of_two(algorithm):
    with pytest.raises(
        ValueError, match=r"n = 6; it must be a power of two; use 4 or 8, or a ring"
    ):
        algorithm(100, 6)


def test_all_reduce_seconds_counts_steps_and_bytes():
    link = {"latency_seconds": 1e-6, "bytes_per_second": 450e9}
    assert all_reduce_seconds(8e9, 8, **link) == pytest.approx(14 * 1e-6 + 2 * 7 / 8 * 8e9 / 450e9)
    assert all_reduce_seconds(0, 5, **link) == pytest.approx(8e-6)
    assert all_reduce_seconds(1e12, 1, **link) == 0


def test_hierarchical_all_reduce_seconds_adds_up_both_levels():
    fast, slow = (1e-6, 450e9), (1e-5, 50e9)
    links = {"inner_link": fast, "outer_link": slow}
    inside, between = 14e-6 + 2 * 7 * 1e9 / 450e9, 6e-5 + 2 * 3 / 4 * 1e9 / 50e9
    both = hierarchical_all_reduce_seconds(8e9, inner=8, outer=4, **links)
    assert both == pytest.approx(inside + between)
    for inner, outer, (latency, rate) in ((8, 1, fast), (1, 8, slow)):
        one = all_reduce_seconds(8e9, 8, latency_seconds=latency, bytes_per_second=rate)
        assert one == hierarchical_all_reduce_seconds(8e9, inner=inner, outer=outer, **links)


RIGHT = {
    all_reduce_seconds: {"num_bytes": 1, "n": 1, "latency_seconds": 0, "bytes_per_second": 1},
    hierarchical_all_reduce_seconds: {
        "num_bytes": 1, "inner": 1, "outer": 1, "inner_link": (0, 1), "outer_link": (0, 1),
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("function", "wrong", "message"),
    [
        (all_reduce_seconds, {"num_bytes": -1}, "num_bytes = -1; it must be 0 or more"),
        (all_reduce_seconds, {"n": 0}, "n = 0; it must be 1 or more"),
        (all_reduce_seconds, {"latency_seconds": -1e-6}, "latency_seconds = -1e-06; it must be 0"),
        (all_reduce_seconds, {"bytes_per_second": 0}, "bytes_per_second = 0; it must be above 0"),
        (all_reduce_seconds, {"bytes_per_second": float("nan")}, "bytes_per_second = nan; it must"),
        (hierarchical_all_reduce_seconds, {"num_bytes": -1}, "num_bytes = -1"),
        (hierarchical_all_reduce_seconds, {"inner": 0}, "inner = 0; it must be 1 or more"),
        (hierarchical_all_reduce_seconds, {"outer": -2}, "outer = -2; it must be 1 or more"),
        (
            hierarchical_all_reduce_seconds,
            {"inner_link": (-1, 1)},
            "inner_latency_seconds = -1; it",
        ),
        (hierarchical_all_reduce_seconds, {"outer_link": (0, 0)}, "outer_bytes_per_second = 0; it"),
    ],
)
def test_no_such_devices_or_links(function, wrong, message):
    with pytest.raises(ValueError, match=f"^{function.__name__}: {message}"):
        function(**RIGHT[function] | wrong)
