"""The roofline against figures of the scaling book."""

from dataclasses import replace

import pytest

from jaxpar.cost.communication import Kind, Link
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.network import collective_seconds
from jaxpar.cost.roofline import (
    attainable_flops,
    product_intensity,
    tokens_that_hide_fsdp,
    tokens_to_hide,
)
from jaxpar.layout import Layout

H100, PEAK = find_cluster("h100"), 990e12


def test_a_product_reads_two_matrices_and_writes_one() -> None:
    assert product_intensity(2, 3, 5, element_bytes=1) == 60 / 31
    assert product_intensity(1024, 1024, 1024) == pytest.approx(1024 / 3)


def test_few_rows_have_about_one_flop_for_each_byte_of_16_bits_a_row() -> None:
    assert product_intensity(1, 8192, 8192) == pytest.approx(1, rel=3e-4)
    assert product_intensity(240, 8192, 8192) == pytest.approx(240, rel=0.06)


def test_a_v5e_is_bound_by_memory_below_240_rows() -> None:
    peak, bandwidth = 197e12, 819e9
    assert attainable_flops(100, peak, bandwidth) == 100 * bandwidth
    assert attainable_flops(240, peak, bandwidth) < peak
    assert attainable_flops(241, peak, bandwidth) == peak


def test_tokens_to_hide_data_parallelism_on_h100() -> None:
    """Figures of jax-ml/scaling-book, gpus.md, which leaves out (n-1)/n unless n is small."""
    in_node = tokens_to_hide(Layout(fsdp=8), "fsdp", H100, PEAK)
    assert in_node * 8 / 7 == pytest.approx(2200)
    beyond = tokens_to_hide(Layout(fsdp=1024), "fsdp", H100, PEAK)
    assert beyond * 128 / 127 == pytest.approx(2475)
    two_nodes = tokens_to_hide(Layout(dp=2, tp=8), "dp", H100, PEAK)
    assert two_nodes == pytest.approx(1237, abs=1)
    # quiz 5, question 2: with a pipeline over 8 nodes, 309
    stages = tokens_to_hide(Layout(pp=8, dp=1024, tp=8), "dp", H100, PEAK)
    assert stages == pytest.approx(309, rel=2e-3)


def test_tokens_to_hide_on_other_devices() -> None:
    """The same page: 3300 on H800, whose links inside have 300 GB/s; 5625 on B200."""
    h800 = replace(H100, inside=Link(0, 300e9))
    assert tokens_to_hide(Layout(fsdp=8), "fsdp", h800, PEAK) * 8 / 7 == pytest.approx(3300)
    b200 = find_cluster("b200")
    beyond = tokens_to_hide(Layout(fsdp=1024), "fsdp", b200, b200.device.peak_flops["bf16"])
    assert beyond * 128 / 127 == pytest.approx(5625)
    # training.md: TPU v5p, links of 90 GB/s one way: 2550 tokens with one axis of the torus
    v5p = find_cluster("tpu-v5p")
    v5p = replace(v5p, inside=Link(0, 90e9))
    on_an_axis = tokens_to_hide(Layout(fsdp=16), "fsdp", v5p, v5p.device.peak_flops["bf16"])
    assert on_an_axis * 16 / 15 == pytest.approx(2550)


@pytest.mark.parametrize("layout", [Layout(fsdp=8), Layout(fsdp=64), Layout(fsdp=32, tp=4)])
def test_with_so_many_tokens_sending_takes_as_long_as_computing(layout: Layout) -> None:
    cluster = replace(H100, inside=Link(0, 450e9), between=Link(0, 50e9))
    tokens = layout.tp * tokens_to_hide(layout, "fsdp", cluster, PEAK)  # of devices that share them
    parameters = 1e9 / layout.tp

    def sending(kind: Kind, operand: float) -> float:
        return collective_seconds(kind, operand, layout, "fsdp", cluster)

    forward, backward = (flops * parameters * tokens / PEAK for flops in (2, 4))
    gather = sending("all_gather", 2 * parameters / layout.fsdp)
    assert gather == pytest.approx(forward)
    assert gather + sending("reduce_scatter", 2 * parameters) == pytest.approx(backward)
    assert sending("all_reduce", 2 * parameters) == pytest.approx(backward)


def test_wider_gradients_need_more_tokens() -> None:
    of_2, of_4 = (
        tokens_to_hide(Layout(dp=64), "dp", H100, PEAK, parameter_bytes=size) for size in (2, 4)
    )
    assert of_4 == 2 * of_2


@pytest.mark.parametrize(("name", "n"), [("h100", 4), ("h100", 64), ("rtx4090", 4), ("gb200", 144)])
@pytest.mark.parametrize("parameter_bytes", [2, 4])
def test_the_tokens_that_hide_fsdp_are_those_of_a_layout(
    name: str, n: int, parameter_bytes: int
) -> None:
    cluster = find_cluster(name)
    figures = {
        "devices_per_node": cluster.devices_per_node,
        "flops_per_second": PEAK,
        "inside_bytes_per_second": cluster.inside.bytes_per_second,
        "between_bytes_per_second": cluster.between.bytes_per_second,
        "parameter_bytes": parameter_bytes,
    }
    of_layout = tokens_to_hide(
        Layout(fsdp=n), "fsdp", cluster, PEAK, parameter_bytes=parameter_bytes
    )
    assert tokens_that_hide_fsdp(n, **figures) == pytest.approx(of_layout)


def test_nodes_in_part_and_impossible_numbers_are_refused() -> None:
    figures = {"devices_per_node": 8, "flops_per_second": 1.0, "parameter_bytes": 2.0}
    links = {"inside_bytes_per_second": 1.0, "between_bytes_per_second": 1.0}
    with pytest.raises(ValueError, match=r"12 devices in nodes of 8; .* use a multiple of 8"):
        tokens_that_hide_fsdp(12, **figures, **links)
    with pytest.raises(ValueError, match="fsdp is 0; use a number above 0"):
        tokens_that_hide_fsdp(0, **figures, **links)
    assert tokens_that_hide_fsdp(1, **figures, **links) == 0
