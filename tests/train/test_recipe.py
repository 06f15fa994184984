"""What a recipe makes of options, and which it refuses."""

import pytest

from jaxpar.model import Settings
from jaxpar.train.recipe import Recipe, make_recipe


@pytest.mark.parametrize(
    ("recipe", "zero", "mesh"),
    [
        (make_recipe("dp=8"), 0, "dp=8"),
        (make_recipe("dp=8", zero=2), 2, "dp=8"),
        (make_recipe("fsdp=8"), 3, "fsdp=8"),
        (make_recipe("fsdp=4,dp=2", zero=1), 1, "dp=2,fsdp=4"),
    ],
)
def test_the_mesh_and_the_stage_make_the_layout(recipe: Recipe, zero: int, mesh: str) -> None:
    assert (recipe.layout.zero, recipe.layout.mesh) == (zero, mesh)


@pytest.mark.parametrize(
    ("given", "kept", "store"),
    [
        (None, "none", "host"),
        ("none", "none", "host"),
        ("optimizer", "optimizer", "host"),
        ("host", "optimizer", "host"),
        ("disk", "optimizer", "disk"),
    ],
)
def test_offload_says_what_waits_and_where(given: str | None, kept: str, store: str) -> None:
    layout = make_recipe(offload=given).layout
    assert (layout.offload, layout.store) == (kept, store)


def test_chunks_are_those_of_the_schedule() -> None:
    recipe = make_recipe("pp=2", schedule="interleaved", microbatches=4)
    assert recipe.layout.chunks == recipe.table.chunks == 2
    assert (recipe.microbatches, recipe.layout.microbatch) == (4, 4)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"mesh": "tpx=2,dp=4"}, "has axes tpx; training splits the batch over dp, fsdp and ep"),
        ({"chunks": 2}, "--chunks 2 with --mesh dp=8: it is for devices that hold different"),
        ({"mesh": "pp=2", "chunks": 2}, "chunks is 2; 1f1b has 1 on each device"),
        ({"zero": 4}, "--zero is 4; use one of 0, 1, 2, 3"),
        ({"precision": "fp8"}, "--precision is 'fp8'; use one of fp32, bf16, fp16"),
        ({"mesh": "cp=8", "context": "round"}, "--context is 'round'; use one of zigzag, ring, g"),
        ({"context": "ring"}, "--context ring with --mesh dp=8: .*; use --mesh cp=N, or leave"),
        (
            {"mesh": "cp=2", "attention": "plain"},
            "--attention plain with --mesh cp=2: over cp, --co",
        ),
        (
            {"mesh": "pp=2,cp=2", "context": "ring"},
            "--context ring with --mesh pp=2,cp=2: every devi",
        ),
        ({"remat": "some"}, "--remat is 'some'; use one of none, selective, full, prod"),
        ({"offload": "tape"}, "--offload is 'tape'; use one of none, optimizer, host, disk"),
        ({"microbatches": 0}, "--microbatches is 0; use 1 or more"),
        ({"mesh": "fsdp=8", "zero": 0}, "shard the states of training, and stage 0 shards nothing"),
        ({"mesh": "dp=1", "zero": 1}, "axis dp has one device, and no other to shard with"),
        ({"mesh": "dp=8,fsdp=1"}, "axis fsdp has one device"),
        ({"mesh": "pp=2,dp=2", "zero": 2}, "--zero 2 with --mesh pp=2,dp=2: a stage of a pipel"),
        ({"zero": 1, "gather": "step"}, "--gather step with --zero 1: only at stage 3 are"),
        ({"gather": "never"}, "--gather is 'never'; use one of use, step"),
        ({"optimizer": "adam"}, "--optimizer is 'adam'; use one of adamw, adam8bit, sgd"),
        ({"outer": "nesterov"}, "--outer nesterov without --sync-every"),
        ({"sync_every": 0}, "--sync-every 0; use 1 or more"),
        ({"sync_every": 5, "outer": "adam"}, "--outer is 'adam'; use one of average, nesterov"),
        ({"mesh": "tp=8", "sync_every": 5}, "--sync-every 5 with --mesh tp=8: only the devices of"),
        (
            {"mesh": "fsdp=8", "compress": "sign"},
            "--compress sign with --mesh fsdp=8: only the dev",
        ),
        ({"sync_every": 5, "zero": 1}, "--sync-every 5 with --zero 1 over dp: its devices own dif"),
        ({"compress": "int4", "zero": 3}, "--compress int4 with --zero 3 over dp: its devices own"),
        (
            {"compress": "int8", "offload": "host"},
            "--compress int8 with --offload: a state outside",
        ),
        ({"compress": "int8", "precision": "fp16"}, "--compress int8 with --precision fp16: a gra"),
        ({"sync_every": 5, "precision": "bf16"}, "--sync-every 5 with --precision bf16: a round a"),
        ({"sync_every": 5, "clip": 1.0}, "--sync-every 5 with --clip 1.0: the norm is that of the"),
        ({"mesh": "dp=2,fsdp=4", "sync_every": 5, "zero": 1}, "--zero 1: a local step updates the"),
        ({"compress": "int2"}, "--compress int2: use int8, int4, sign, topk=FRACTION"),
        ({"compress": "int8=4"}, "--compress int8=4: use int8, int4, sign, topk=FRACTION"),
        ({"compress": "topk"}, "--compress topk: use int8, int4, sign, topk=FRACTION"),
        ({"compress": "topk=0"}, "--compress topk=0: use int8, int4, sign, topk=FRACTION"),
        ({"compress": "topk=nan"}, "--compress topk=nan: use int8, int4, sign, topk=FRACTION"),
        ({"compress": "powersgd"}, "--compress powersgd: use int8, int4, sign, topk=FRACTION"),
        ({"compress": "powersgd=0"}, r"powersgd=RANK \(1 or more\)"),
        ({"compress": "powersgd=1.5"}, r"powersgd=RANK \(1 or more\)"),
        ({"compress": "topk=1.5"}, "--compress topk=1.5: use int8, int4, sign, topk=FRACTION"),
        ({"clip": 0.0}, "--clip is 0.0; use a norm above 0"),
        ({"clip": float("nan")}, "--clip is nan; use a norm above 0"),
        ({"schedule": "gpipe"}, "--schedule gpipe with --mesh dp=8: it is for devices that hold"),
        ({"sequence_parallel": True}, "--sequence-parallel with --mesh dp=8: positions are split"),
        ({"mesh": "fsdp=8", "remat": "none"}, "every layer's parameters, once gathered, would be"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(fields: dict, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        make_recipe(**fields)


def test_a_batch_is_split_equally() -> None:
    assert make_recipe("dp=2,fsdp=4", microbatches=3, batch=48).layout.microbatch == 2
    make_recipe("dp=2,tp=4", microbatches=4, batch=8).check(Settings())
    with pytest.raises(ValueError, match=r"b \(size 12\) must be divisible by mesh axis dp\*fsdp"):
        make_recipe("dp=2,fsdp=4", batch=12)
    with pytest.raises(ValueError, match="--microbatches 4 and 6 examples on a device"):
        make_recipe("dp=8", microbatches=4, batch=48)


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
def test_layers_are_split_equally(settings: Settings, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        make_recipe("tp=8", sequence_parallel=True).check(settings)


def test_a_ring_is_the_default_where_all_devices_do_the_same() -> None:
    assert make_recipe("dp=2,cp=4").layout.context == "zigzag"
    assert make_recipe("pp=2,cp=4", microbatches=2).layout.context == "gather"
    assert make_recipe("cp=4", context="ulysses").split.by == "ulysses"


def test_steps_are_whole_rounds() -> None:
    make_recipe().check_steps(50)
    recipe = make_recipe(sync_every=20, outer="nesterov")
    recipe.check_steps(60)
    with pytest.raises(
        ValueError, match=r"--steps 50 with --sync-every 20: .* use --steps 40 or 60"
    ):
        recipe.check_steps(50)
    with pytest.raises(ValueError, match=r"use --steps 20$"):
        recipe.check_steps(7)
