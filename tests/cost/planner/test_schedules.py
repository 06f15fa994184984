"""A plan under each pipeline schedule."""

from dataclasses import replace

import pytest

from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner import Job, explore
from jaxpar.cost.planner.plan import Plan
from jaxpar.cost.planner.schedules import under_schedules

JOB = Job(find_model("llama3-70b"), find_cluster("h100"), 64, 64, 4096)


def plan(job: Job = JOB, **fixed: int) -> Plan:
    return explore(job, {"pp": 4, "dp": 2, "tp": 8, "microbatch": 2} | fixed).plans[0]


@pytest.mark.parametrize(("chunks", "name"), [(1, "1f1b"), (5, "interleaved, 5 chunks")])
def test_the_schedule_of_the_formulas_takes_what_they_say(chunks: int, name: str) -> None:
    one = plan(chunks=chunks)
    same = next(found for found in under_schedules(one) if found.name == name)
    assert same.step_seconds == pytest.approx(one.step_seconds)
    assert same.memory_bytes == pytest.approx(one.memory_bytes)


def test_what_is_known_of_the_others() -> None:
    found = under_schedules(plan(chunks=1))
    assert [one.step_seconds for one in found] == sorted(one.step_seconds for one in found)
    named = {one.name.partition(",")[0]: one for one in found}
    first, gpipe, half, free = (named[name] for name in ("1f1b", "gpipe", "zb-h1", "zb-h2"))
    assert gpipe.step_seconds == pytest.approx(first.step_seconds)
    assert (gpipe.in_flight, first.in_flight) == (16, 4)
    assert gpipe.memory_bytes > free.memory_bytes > first.memory_bytes
    assert free.step_seconds < half.step_seconds < first.step_seconds
    assert half.in_flight == first.in_flight and free.in_flight == 2 * first.in_flight - 1


def test_frozen_weights_leave_no_half_to_delay() -> None:
    """Without gradients of weights the two halves are one, and zero bubble wins nothing."""
    frozen = replace(JOB, each=replace(JOB.each, trained=0.01))
    named = {one.name: one for one in under_schedules(plan(frozen, chunks=1))}
    assert named["zb-h1"].step_seconds == pytest.approx(named["1f1b"].step_seconds)


def test_schedules_that_cannot_run_say_why() -> None:
    few = replace(JOB, architecture=replace(JOB.architecture, layers=4))
    *_, last = under_schedules(plan(few, chunks=1))
    assert last.problem == "the model has too few layers for 8 stages"
    with pytest.raises(ValueError, match="it has no pipeline; fix one, as --mesh pp=4"):
        under_schedules(explore(JOB, {"fsdp": 64}).plans[0])
    many = replace(JOB, batch=16384)
    with pytest.raises(ValueError, match=r"plan: --schedules with .*65,536 forward passes are"):
        under_schedules(plan(many, chunks=4, microbatch=2))
