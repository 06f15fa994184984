"""Which links a mesh axis crosses, and how long collectives over it take."""

from dataclasses import replace

import numpy as np
import pytest

from jaxpar.cost.communication import Link, hierarchical_all_reduce, ring_all_reduce, wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.network import collective_seconds, flat_ring_seconds, levels
from jaxpar.layout import Layout

H100 = find_cluster("h100")
KINDS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute", "broadcast")
TENSOR = 2 * 4096 * 65536  # bf16


def at_once(cluster):
    """The same cluster with links that have no latency."""
    inside, between = (Link(0, its.bytes_per_second) for its in (cluster.inside, cluster.between))
    return replace(cluster, inside=inside, between=between)


@pytest.mark.parametrize(
    ("layout", "axis", "expected"),
    [
        (Layout(tp=8), "tp", (8, 1)),
        (Layout(dp=4, tp=8), "tp", (8, 1)),
        (Layout(dp=4, tp=8), "dp", (1, 4)),
        (Layout(dp=32), "dp", (8, 4)),
        (Layout(dp=16, tp=2), "dp", (4, 4)),
        (Layout(pp=4, dp=2, tp=4), "pp", (1, 4)),
        (Layout(pp=4, dp=2, tp=4), "dp", (2, 1)),
        (Layout(tp=16), "tp", (8, 2)),
        (Layout(dp=2, cp=4, tp=2), ("dp", "cp"), (4, 2)),
        (Layout(dp=4, ep=2, cp=2, tp=2), ("dp", "cp"), (2, 4)),
        (Layout(dp=4, ep=2, cp=2, tp=2), ("dp", "ep", "cp"), (4, 4)),
        (Layout(dp=2, tp=3), "dp", (2, 1)),  # 6 devices are on one node
        (Layout(dp=4, tp=3), "dp", (2, 2)),  # 12 on two nodes, 6 on each
        (Layout(dp=8, tp=6), "tp", (2, 3)),  # 48 fill six nodes: groups of six cross them
        (Layout(dp=8, tp=3), "dp", (1, 8)),
        (Layout(), "dp", (1, 1)),
    ],
)
def test_how_many_devices_of_an_axis_are_on_how_many_nodes(layout, axis, expected):
    assert levels(layout, axis, H100) == expected


def test_not_all_of_a_rack_where_devices_do_not_fill_it():
    rack = find_cluster("gb200")
    assert levels(Layout(dp=16, tp=8), "dp", rack) == (8, 2)  # 64 of 72
    assert levels(Layout(dp=9, tp=8), "dp", rack) == (9, 1)
    assert levels(Layout(dp=18, tp=8), "dp", rack) == (9, 2)


def test_published_times_on_h100():
    cluster = at_once(H100)
    inside = collective_seconds("all_gather", TENSOR / 8, Layout(tp=8), "tp", cluster)
    assert f"{1e3 * inside:.2f}" == "1.04"
    # jax-ml/scaling-book gpus.md, pop quiz 1: bf16[1024, 16384] in 65 us
    quiz = collective_seconds("all_gather", 2 * 1024 * 16384 / 8, Layout(tp=8), "tp", cluster)
    assert f"{1e6 * quiz:.0f}" == "65"
    # there, cross-node collectives: 514 GB/s in a node, 413 GB/s over 32 nodes
    assert f"{TENSOR / inside / 1e9:.0f}" == "514"
    over_32 = collective_seconds("all_gather", TENSOR / 256, Layout(dp=256), "dp", cluster)
    assert f"{TENSOR / over_32 / 1e9:.0f}" == "413"
    # there, an all-to-all over m nodes: B (m - 1) / (m^2 W), B in all, W of a node
    spread = collective_seconds("all_to_all", TENSOR / 32, Layout(ep=32), "ep", cluster)
    assert spread == pytest.approx(TENSOR * 3 / (16 * 400e9))
    # in a node: B (n - 1) / (n^2 W), W of a device
    near = collective_seconds("all_to_all", TENSOR / 8, Layout(ep=8), "ep", cluster)
    assert near == pytest.approx(TENSOR * 7 / (64 * 450e9))


# jax-ml/scaling-book gpus.md: 8 x 400 Gb/s leave a node of H100, and 450 GB/s a device inside it
NODE_EGRESS, CARD, NVLINK = 400e9, 50e9, 450e9


def test_a_group_that_fills_nodes_has_all_their_network_cards():
    seconds = collective_seconds("reduce_scatter", TENSOR, Layout(dp=64), "dp", at_once(H100))
    assert seconds == pytest.approx(7 / 8 * TENSOR / NODE_EGRESS)


def test_a_group_with_one_device_on_a_node_has_one_network_card():
    layout = Layout(dp=8, tp=8)  # eight such groups at once
    seconds = collective_seconds("reduce_scatter", TENSOR, layout, "dp", at_once(H100))
    assert seconds == pytest.approx(7 / 8 * TENSOR / CARD)


def test_sharding_inside_a_node_leaves_the_time_between_nodes_as_it_was():
    # gpus.md, pop quiz 3, 256 GPUs: 2DF 31 / (32 x 400e9) for Y <= 8, however large Y is
    for tp in (2, 4, 8):
        layout = Layout(fsdp=256 // tp, tp=tp)
        shard = TENSOR / 256  # the tensor is split over tp and over fsdp
        seconds = collective_seconds("all_gather", shard, layout, "fsdp", at_once(H100))
        assert seconds == pytest.approx(TENSOR * 31 / (32 * NODE_EGRESS)), tp


def test_a_flat_ring_leaves_nodes_by_all_network_cards():
    n, cluster = 64, at_once(H100)
    flat = flat_ring_seconds("all_reduce", TENSOR, Layout(dp=n), "dp", cluster)
    assert flat == pytest.approx(2 * (n - 1) / n * TENSOR / NODE_EGRESS)
    # gpus.md takes bytes / 400e9 for one pass over however many nodes, and twice that for both
    assert flat == pytest.approx(2 * TENSOR / NODE_EGRESS, rel=1 / n)
    one_card = ring_all_reduce(TENSOR, n).seconds(Link(0, CARD))
    assert one_card == pytest.approx(8 * flat)


def test_a_flat_ring_is_bound_by_the_links_inside_where_cards_are_faster():
    # one of eight rings goes on by the device's card, and seven by its link inside the node
    fast = replace(H100, inside=Link(0, NVLINK), between=Link(0, 1e12))
    for kind in ("all_reduce", "reduce_scatter"):
        seconds = flat_ring_seconds(kind, TENSOR, Layout(dp=64), "dp", fast)
        assert seconds == pytest.approx(wire_bytes(kind, TENSOR, 64) * 7 / 8 / NVLINK)


def test_a_flat_ring_within_a_node_or_with_one_device_of_each_is_the_ring():
    for layout, axis, link in (
        (Layout(tp=8), "tp", H100.inside),
        (Layout(dp=8, tp=8), "dp", H100.between),
    ):
        flat = flat_ring_seconds("all_reduce", 1e9, layout, axis, H100)
        assert flat == pytest.approx(ring_all_reduce(1e9, 8).seconds(link))
    assert flat_ring_seconds("all_gather", 1e9, Layout(), "dp", H100) == 0


def test_steps_of_a_flat_ring_as_nccl_counts_them():
    # src/graph/tuning.cc, all-reduce by a ring: nsteps 2 (n - 1), nInterSteps 2 (nNodes - 1)
    n, nodes = 64, 8
    seconds = flat_ring_seconds("all_reduce", 0, Layout(dp=n), "dp", H100)
    inside, between = H100.inside.latency_seconds, H100.between.latency_seconds
    inter_steps = 2 * (nodes - 1)
    assert seconds == pytest.approx((2 * (n - 1) - inter_steps) * inside + inter_steps * between)


@pytest.mark.parametrize("nodes", [2, 4, 8, 32])
def test_two_levels_send_less_out_of_a_node_than_a_flat_ring(nodes):
    _, between = hierarchical_all_reduce(TENSOR, 8, nodes)
    flat = wire_bytes("all_reduce", TENSOR, 8 * nodes)  # all rings of a node together
    assert 8 * between.wire_bytes < flat
    assert flat / (8 * between.wire_bytes) == pytest.approx((8 * nodes - 1) / (8 * (nodes - 1)))
    layout = Layout(dp=8 * nodes)
    two_levels = collective_seconds("all_reduce", TENSOR, layout, "dp", at_once(H100))
    assert two_levels < flat_ring_seconds("all_reduce", TENSOR, layout, "dp", at_once(H100))


@pytest.mark.parametrize(("layout", "n"), [(Layout(tp=8), 8), (Layout(dp=4, tp=8), 4)])
def test_bus_factors_of_nccl_tests(layout, n):
    cluster = at_once(H100)
    axis = "tp" if n == 8 else "dp"
    rate = 450e9 if n == 8 else 50e9
    factors = {"all_reduce": 2 * (n - 1) / n, "reduce_scatter": (n - 1) / n, "permute": 1.0}
    factors |= {"all_gather": (n - 1) / n, "all_to_all": (n - 1) / n}
    for kind, factor in factors.items():
        operand = TENSOR / n if kind == "all_gather" else TENSOR
        seconds = collective_seconds(kind, operand, layout, axis, cluster)
        assert seconds * rate / TENSOR == pytest.approx(factor, rel=1e-12), kind


def test_in_a_node_it_is_the_ring_with_its_latency():
    for n in (2, 3, 8):
        seconds = collective_seconds("all_reduce", 1e6, Layout(tp=n), "tp", H100)
        assert seconds == pytest.approx(ring_all_reduce(1e6, n).seconds(H100.inside))


def test_both_levels_are_busy_at_once():
    layout, size = Layout(dp=16), 1e9  # two nodes
    inside, between = 2 * 7 / 8 * size / 450e9, 2 * 1 / 2 * size / 8 / 50e9
    pipelined = collective_seconds("all_reduce", size, layout, "dp", at_once(H100))
    assert pipelined == pytest.approx(max(inside, between))


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather():
    fast_network = replace(H100, between=Link(1e-6, 1e12))
    for cluster in (H100, fast_network, find_cluster("tpu-v4")):
        for layout in (Layout(dp=8), Layout(dp=64), Layout(dp=8, tp=4)):
            parts = ("reduce_scatter", 1e9), ("all_gather", 1e9 / layout.dp)
            two = sum(collective_seconds(kind, size, layout, "dp", cluster) for kind, size in parts)
            once = collective_seconds("all_reduce", 1e9, layout, "dp", cluster)
            assert once == pytest.approx(two)


def test_a_short_message_takes_the_tree():
    layout, far = Layout(dp=64, tp=8), H100.between
    short = collective_seconds("all_reduce", 8.0, layout, "dp", H100)
    assert short == pytest.approx(2 * 6 * (far.latency_seconds + 8.0 / far.bytes_per_second))
    long = collective_seconds("all_reduce", 8e9, layout, "dp", H100)
    assert long == pytest.approx(ring_all_reduce(8e9, 64).seconds(far))


@pytest.mark.parametrize("name", ["h100", "rtx4090", "gb200", "tpu-v5e", "tpu-v4"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_device_takes_no_time(name, kind):
    for layout in (Layout(), Layout(dp=4, tp=2)):
        assert collective_seconds(kind, 1e9, layout, "cp", find_cluster(name)) == 0


def test_a_permute_takes_the_link_of_its_slowest_pair():
    def permute(layout, axis):
        return collective_seconds("permute", 1e9, layout, axis, H100)

    near, far = (link.latency_seconds + 1e9 / link.bytes_per_second for link in
                 (H100.inside, H100.between))  # fmt: skip
    assert permute(Layout(pp=2, tp=4), "pp") == pytest.approx(near)
    assert permute(Layout(pp=2, tp=8), "pp") == pytest.approx(far)
    assert permute(Layout(pp=4, tp=4), "pp") == pytest.approx(far)


def test_home_machines_share_their_ethernet():
    one, two = find_cluster("rtx4090"), find_cluster("rtx4090-2x")
    gradients = 2 * 1e9
    apart = collective_seconds("all_reduce", gradients, Layout(dp=4), "dp", at_once(one))
    assert apart == pytest.approx(2 * 3 / 4 * gradients / 1.25e9)
    # Two cards a machine: half of the bytes over each card's half of the link.
    paired = collective_seconds("all_reduce", gradients, Layout(dp=4), "dp", at_once(two))
    assert paired == pytest.approx(2 * 1 / 2 * gradients / 2 / 0.625e9)


def test_rings_of_a_torus():
    pod = at_once(find_cluster("tpu-v5e"))
    # S / W of both directions, for whole rings less what is at home
    for n, rings in ((16, 1), (256, 2)):
        gather = collective_seconds("all_gather", TENSOR / n, Layout(fsdp=n), "fsdp", pod)
        assert gather == pytest.approx(TENSOR * (n - 1) / n / (rings * 2 * 50e9))
    gather = collective_seconds("all_gather", TENSOR / 32, Layout(fsdp=32), "fsdp", pod)
    assert gather == pytest.approx(TENSOR * 31 / 32 / (2 * 2 * 50e9))  # too many for one ring
    # an all-to-all: 1/4 of S / W
    spread = collective_seconds("all_to_all", TENSOR / 16, Layout(ep=16), "ep", pod)
    assert spread == pytest.approx(TENSOR / (2 * 50e9) / 4)
    # over a pod half of the bytes go through its 2 x 16 middle links, each way
    spread = collective_seconds("all_to_all", TENSOR / 256, Layout(ep=256), "ep", pod)
    assert spread == pytest.approx(TENSOR / 4 / (2 * 16 * 50e9))
    # two pods: the network between them
    far = collective_seconds("all_reduce", 1e9, Layout(dp=2, fsdp=256), "dp", pod)
    assert far == pytest.approx(1e9 / 3.125e9)


def test_many_layouts_at_once_are_each_as_alone():
    sizes = [(p, d, 96 // (p * d)) for p in (1, 2, 3) for d in (1, 2, 4, 8, 16, 32)]
    pp, dp, tp = (np.array(column) for column in zip(*sizes, strict=True))
    bytes_of_each = np.linspace(1e3, 1e9, len(sizes))
    for name in ("h100", "gb200", "tpu-v4", "rtx4090-2x"):
        cluster = find_cluster(name)
        for kind in KINDS:
            for axis in ("pp", "dp", "tp", ("pp", "dp")):
                together = collective_seconds(
                    kind, bytes_of_each, Layout(pp=pp, dp=dp, tp=tp), axis, cluster
                )
                alone = [
                    collective_seconds(kind, size, Layout(pp=p, dp=d, tp=t), axis, cluster)
                    for size, (p, d, t) in zip(bytes_of_each, sizes, strict=True)
                ]
                np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_layouts_of_different_sizes_at_once():
    layout = Layout(dp=np.array([2, 4, 8]), tp=np.array([3, 3, 3]))
    inner, outer = levels(layout, "dp", H100)
    assert inner.tolist() == [2, 2, 1]
    assert outer.tolist() == [1, 2, 8]


def test_more_bytes_and_slower_links_take_longer():
    slow = replace(H100, between=Link(1e-3, 1e9))
    for kind in KINDS:
        base = collective_seconds(kind, 1e8, Layout(dp=32), "dp", H100)
        assert collective_seconds(kind, 2e8, Layout(dp=32), "dp", H100) > base
        assert collective_seconds(kind, 1e8, Layout(dp=32), "dp", slow) > base
