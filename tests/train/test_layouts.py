"""Every stage of ZeRO trains as plain data parallelism does, and holds and sends what it should."""

import pytest

from jaxpar.model import Settings
from jaxpar.train.plan import Plan
from jaxpar.train.run import Run
from tests.train.runs import BATCH, PARAMETERS, trained


def bytes_sent(run: Run, kind: str, axis: str) -> float:
    """Over an axis in a step, losses left out."""
    return sum(
        one.times * one.wire_bytes
        for one in run.report.collectives
        if one.kind == kind and one.axes == (axis,) and one.operand_bytes > 4
    )


@pytest.mark.parametrize(
    "plan",
    [
        Plan("dp=8", zero=1, microbatches=2),
        Plan("dp=8", zero=2, microbatches=2),
        Plan("dp=8", zero=3),
        Plan("dp=2,fsdp=4", zero=1),
        Plan("dp=2,fsdp=4", zero=2),
        Plan("dp=2,fsdp=4", zero=3, remat="full"),
    ],
    ids=lambda plan: f"{plan.mesh} zero={plan.zero}",
)
def test_losses_are_those_of_data_parallelism(plan: Plan, expected: list[float]) -> None:
    run, losses = trained(plan)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert losses[-1] < losses[0] - 0.3

    n = plan.sizes[plan.shard_axis]
    whole, batch_bytes = 4 * PARAMETERS, 4 * BATCH // plan.devices * 17
    params = whole / n if plan.stage == 3 else whole
    assert run.report.memory.arguments_bytes == params + 2 * whole / n + batch_bytes + 4

    axis, part = plan.shard_axis, whole * (n - 1) / n
    layers = part - 4 * (n - 1) / n * (2 * 256 * 16 + 16)  # without tables and the last norm
    gathered = part + layers if plan.stage == 3 else part
    scattered = part * plan.microbatches if plan.stage == 2 else part
    assert bytes_sent(run, "reduce_scatter", axis) == pytest.approx(scattered)
    assert bytes_sent(run, "all_gather", axis) == pytest.approx(gathered)
    assert bytes_sent(run, "all_reduce", axis) == 0
    if plan.replica_axis:
        assert bytes_sent(run, "all_reduce", "dp") == pytest.approx(whole / n)


def test_what_does_not_divide_is_padded_unseen() -> None:
    odd = Settings(layers=1, d_model=18, heads=3, d_ff=22, vocabulary=256, sequence=16)
    whole, shared = (trained(plan, odd)[1] for plan in (Plan("dp=8"), Plan("fsdp=8")))
    assert shared == pytest.approx(whole, rel=1e-5)
