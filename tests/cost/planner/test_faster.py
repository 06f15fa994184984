"""One change to a bad plan: its costs are those of the planner, and the rules find one."""

from typing import Any

import pytest

from jaxpar.cost.goodput import failures
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner.candidates import Job
from jaxpar.cost.planner.faster import SIZES, faster_plan, most_chunks, plan_costs
from jaxpar.cost.planner.plan import Plan
from jaxpar.layout import Layout

JOB = {
    "model": "llama3-70b",
    "layers": 80,
    "hardware": "h100",
    "devices_per_node": 8,
    "devices": 64,
    "batch": 64,
    "sequence": 4096,
}
ALONE = dict.fromkeys(SIZES, 1) | {"remat": "none"}


@pytest.mark.parametrize(
    ("plan", "changed"),
    [
        ({"tp": 32, "pp": 2}, {"tp": 8, "dp": 4}),
        ({"tp": 8, "pp": 8, "microbatch": 8}, {"microbatch": 1}),
        ({"tp": 8, "pp": 8, "remat": "full"}, {"remat": "none"}),
    ],
)
def test_a_bad_plan_gets_faster(plan: dict[str, Any], changed: dict[str, Any]) -> None:
    before = ALONE | plan
    seconds, _ = plan_costs(before, JOB)
    after = faster_plan(before, JOB, seconds)
    assert after == before | changed
    assert sum(seconds.values()) > 1.3 * sum(plan_costs(after, JOB)[0].values())


def test_its_costs_are_those_of_the_planner() -> None:
    job = Job(find_model("llama3-70b"), find_cluster("h100"), 64, 64, 4096)
    layout = Layout(pp=2, dp=4, tp=8, zero=1, sequence_parallel=True)
    plan = Plan(job, layout, failures(1, 64, 1e4), overlap=True)
    seconds, memory_bytes = plan_costs(ALONE | {"pp": 2, "dp": 4, "tp": 8}, JOB)
    assert sum(seconds.values()) == pytest.approx(plan.step_seconds)
    assert memory_bytes == pytest.approx(plan.memory_bytes)
    assert min(seconds[cause] for cause in ("arithmetic", "tp", "dp", "pp", "bubble")) > 0
    assert seconds["fsdp"] == 0


def test_an_impossible_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="on 64 devices"):
        plan_costs(ALONE | {"tp": 8}, JOB)
    with pytest.raises(ValueError, match="must divide heads, 64"):
        plan_costs(ALONE | {"tp": 7}, JOB | {"devices": 7})


def test_chunks_have_equally_many_layers() -> None:
    assert [most_chunks(80, pp) for pp in (1, 4, 16, 3)] == [80, 20, 5, 1]
