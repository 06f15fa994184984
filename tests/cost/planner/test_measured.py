"""What the output of the planner marks as beyond what was measured."""

from dataclasses import replace

import pytest

from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.planner.measured import beyond
from jaxpar.cost.planner.published import published_runs
from jaxpar.layout import Layout

H100 = find_cluster("h100")


@pytest.mark.parametrize(
    ("layout", "news"),
    [
        (Layout(pp=16, dp=128, tp=8), []),
        (Layout(fsdp=64), []),
        (Layout(dp=4, cp=2, context="ulysses"), ["cp by ulysses"]),
        (Layout(dp=8, offload="optimizer"), ["offload"]),
        (Layout(pp=16, dp=256, tp=8), ["more than 16,384 devices"]),
    ],
    ids=str,
)
def test_what_no_run_on_h100_has(layout: Layout, news: list[str]) -> None:
    assert beyond(layout, H100) == news


def test_hardware_without_runs() -> None:
    assert beyond(Layout(), find_cluster("rtx4090")) == ["this kind of hardware (ada)"]


def test_tp_across_nodes_was_measured_on_h100_alone() -> None:
    layout = Layout(tp=16)
    assert beyond(layout, H100) == []
    assert beyond(layout, find_cluster("h100-tuned")) == []
    assert beyond(layout, find_cluster("b200")) == ["tp across nodes"]


def test_no_run_is_beyond_itself() -> None:
    for run in published_runs():
        if not run.outside:
            assert beyond(run.layout, replace(run.cluster, eager=False)) == [], run.layout.mesh
