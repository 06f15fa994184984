"""AdamW in 8 bits trains on every mesh as on one device, and is resumed on another mesh."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jaxpar.train.checkpoint import Keeping
from jaxpar.train.manifest import folder_of
from jaxpar.train.recipe import make_recipe
from tests.train.runs import SETTINGS, assert_trains_as_one_device, trained
from tests.train.test_checkpoint import END, SAVED, measured

# Matrices of 4,096 numbers and more, which are in blocks.
WIDER = replace(SETTINGS, layers=2, d_model=64)
EIGHT_BITS: dict[str, Any] = {"optimizer": "adam8bit"}


@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("dp=4", {"zero": 1}),
        ("dp=2,tp=2", {"sequence_parallel": True}),
        ("fsdp=2,tp=2", {"microbatches": 2}),
        ("dp=4", {"zero": 2, "offload": "host"}),
        ("pp=2,fsdp=2", {"microbatches": 2}),
    ],
)
def test_it_trains_as_one_device(mesh: str, options: dict[str, Any]) -> None:
    assert_trains_as_one_device(make_recipe(mesh, **options, **EIGHT_BITS), WIDER, steps=4)


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "fp16", "zero": 1},
        {"compress": "int8"},
        {"sync_every": 2, "outer": "nesterov"},
        {"skip_spikes": 3.0, "average": 0.9},
    ],
)
def test_other_options_go_with_it(options: dict[str, Any]) -> None:
    rounds = options.get("sync_every", 1)
    ours, theirs = (
        trained(make_recipe("dp=2", optimizer=name, **options), WIDER, steps=4 // rounds)
        for name in ("adam8bit", "adamw")
    )
    assert ours.losses == pytest.approx(theirs.losses, rel=1e-3)


def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    recipe = make_recipe("dp=2,tp=2", zero=1, **EIGHT_BITS)
    keeping = Keeping(tmp_path / "run", every=SAVED)
    whole = measured(recipe, WIDER, keeping)
    shutil.rmtree(folder_of(keeping.folder, END))
    elsewhere = shutil.copytree(keeping.folder, tmp_path / "copy")
    resume = replace(keeping, resume=True)
    assert measured(recipe, WIDER, resume).losses == whole.losses[SAVED:]
    other = make_recipe("pp=2,fsdp=2", microbatches=2, **EIGHT_BITS)
    moved = measured(other, WIDER, replace(resume, folder=elsewhere))
    assert moved.losses == pytest.approx(whole.losses[SAVED:], rel=1e-5)


def test_no_block_straddles_devices() -> None:
    settings = replace(WIDER, d_model=96, heads=6, kv_heads=3, d_ff=192, vocabulary=384)
    with pytest.raises(ValueError, match=r"3 devices split .* head, .* has 8 blocks"):
        trained(make_recipe("tp=3", **EIGHT_BITS), settings, steps=1)


def test_it_scales_with_the_width_as_adam_does() -> None:
    settings = replace(WIDER, mup_base=32)
    ours, theirs = (
        trained(make_recipe("dp=1", optimizer=name), settings, steps=4).losses
        for name in ("adam8bit", "adamw")
    )
    assert ours == pytest.approx(theirs, rel=1e-3)
