"""What a plan means, and what it refuses."""

import pytest

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
        ({"mesh": "dp=2,tp=4"}, "has axes tp; so far training splits the batch only"),
        ({"zero": 4}, "--zero is 4; use one of 0, 1, 2, 3"),
        ({"precision": "fp8"}, "--precision is 'fp8'; use one of fp32, bf16, fp16"),
        ({"remat": "some"}, "--remat is 'some'; use one of none, full"),
        ({"offload": "tape"}, "--offload is 'tape'; use one of host, disk"),
        ({"microbatches": 0}, "--microbatches is 0; use 1 or more"),
        ({"mesh": "fsdp=8", "zero": 0}, "share the states of training, and stage 0 shares nothing"),
        ({"mesh": "dp=1", "zero": 1}, "axis dp has one device, and nobody to share with"),
        ({"mesh": "dp=8,fsdp=1"}, "axis fsdp has one device"),
        ({"mesh": "fsdp=8", "remat": "none"}, "every layer's parameters, once gathered, would be"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(fields: dict, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Plan(**fields)


def test_a_batch_is_shared_equally() -> None:
    Plan("dp=2,fsdp=4", microbatches=3).check_batch(48)
    with pytest.raises(ValueError, match=r"b \(size 12\) must be divisible by mesh axis dp\*fsdp"):
        Plan("dp=2,fsdp=4").check_batch(12)
    with pytest.raises(ValueError, match="--microbatches 4 and 6 examples on a device"):
        Plan("dp=8", microbatches=4).check_batch(48)
