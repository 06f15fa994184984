"""What a plan means, and what it refuses."""

import pytest

from jaxpar.model import Settings
from jaxpar.train.plan import Plan


@pytest.mark.parametrize(
    ("plan", "stage", "shard_axis", "replica_axis"),
    [
        (Plan("dp=8"), 0, "dp", None),
        (Plan("dp=8", zero=2), 2, "dp", None),
        (Plan("fsdp=8"), 3, "fsdp", None),
        (Plan("dp=2,fsdp=4"), 3, "fsdp", "dp"),
        (Plan("fsdp=4,dp=2", zero=1), 1, "fsdp", "dp"),
    ],
)
def test_the_axes_have_parts(plan: Plan, stage: int, shard_axis: str, replica_axis: str) -> None:
    assert (plan.stage, plan.shard_axis, plan.replica_axis) == (stage, shard_axis, replica_axis)
    assert plan.devices == 8


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"mesh": "ep=2,dp=4"}, "has axes ep; so far training splits the batch over dp and fsdp"),
        ({"zero": 4}, "--zero is 4; use one of 0, 1, 2, 3"),
        ({"precision": "fp8"}, "--precision is 'fp8'; use one of fp32, bf16, fp16"),
        ({"remat": "some"}, "--remat is 'some'; use one of none, full"),
        ({"offload": "tape"}, "--offload is 'tape'; use one of host, disk"),
        ({"microbatches": 0}, "--microbatches is 0; use 1 or more"),
        ({"mesh": "fsdp=8", "zero": 0}, "share the states of training, and stage 0 shares nothing"),
        ({"mesh": "dp=1", "zero": 1}, "axis dp has one device, and nobody to share with"),
        ({"mesh": "dp=8,fsdp=1"}, "axis fsdp has one device"),
        (
            {"mesh": "fsdp=2,tp=4"},
            "stage 3 of ZeRO .* or layers over pp and tp",
        ),
        ({"sequence_parallel": True}, "--sequence-parallel with --mesh dp=8: positions are shared"),
        ({"mesh": "fsdp=8", "remat": "none"}, "every layer's parameters, once gathered, would be"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(fields: dict, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Plan(**fields)


def test_a_batch_is_shared_equally() -> None:
    Plan("dp=2,fsdp=4", microbatches=3).check(Settings(), 48)
    Plan("dp=2,tp=4", microbatches=4).check(Settings(), 8)
    with pytest.raises(ValueError, match=r"b \(size 12\) must be divisible by mesh axis dp\*fsdp"):
        Plan("dp=2,fsdp=4").check(Settings(), 12)
    with pytest.raises(ValueError, match="--microbatches 4 and 6 examples on a device"):
        Plan("dp=8", microbatches=4).check(Settings(), 48)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (Settings(heads=4), r"a \(size 4\) must be divisible by mesh axis tp \(size 8\)"),
        (Settings(heads=24, d_model=48, kv_heads=3), r"3 kv heads on mesh axis tp \(size 8\)"),
        (Settings(d_ff=100), r"f \(size 100\) must be divisible"),
        (Settings(vocabulary=257), r"v \(size 257\) must be divisible .* pad v to 264"),
        (Settings(sequence=100), r"t \(size 100\) must be divisible"),
    ],
    ids=["heads", "kv heads", "hidden size", "vocabulary", "positions"],
)
def test_layers_are_shared_equally(settings: Settings, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Plan("tp=8", sequence_parallel=True).check(settings, 8)
