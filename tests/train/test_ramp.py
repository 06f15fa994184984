"""The ramp of the batch: its sizes, the examples that it takes, and that all mixes agree."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxpar.train.checkpoint import Keeping
from jaxpar.train.manifest import folder_of, read_manifest
from jaxpar.train.ramp import Ramp, parse_ramp
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import results
from jaxpar.train.text import read_library
from tests.train.quick_runs import begin_quickly

TEXT = read_library()[: 16 * 36 + 1]  # 36 examples: an epoch ends within the steps below
SIZES = [4, 4, 8, 8, 16, 16]
OPTIONS = {"batch": 16, "batch_ramp": "4:4"}
begun = partial(begin_quickly, TEXT)


def losses(recipe: Recipe, keeping: Keeping | None = None, end: int = len(SIZES)) -> list[float]:
    run = begun(recipe, keeping)
    found = [step.loss for step in run.proceed(end)]
    run.close()
    return found


@pytest.fixture(scope="module")
def alone() -> list[float]:
    return losses(make_recipe("dp=1", **OPTIONS))


def test_sizes_double_and_examples_are_counted() -> None:
    ramp = parse_ramp("2:9", batch=16, parts=2, rounds=1)
    assert ramp == Ramp((2, 4, 8, 16), 3)
    expected = np.cumsum([0, *np.repeat([2, 4, 8], 3), *[16] * 3])
    assert [ramp.examples(steps) for steps in range(13)] == expected.tolist()
    assert [ramp.sizes_from(taken) for taken in (0, 2, 3, 8, 9, 99)] == [
        (2, 4, 8, 16), (2, 4, 8, 16), (4, 8, 16), (8, 16), (16,), (16,),
    ]  # fmt: skip
    assert str(ramp) == "2, then 4, then 8 examples for 3 steps each, then 16"


def test_the_speed_is_that_of_the_tokens_taken() -> None:
    run = begun(make_recipe("dp=1", **OPTIONS))
    taken = list(run.proceed(len(SIZES)))
    assert run.predicted(len(SIZES)) == 16 * sum(SIZES)
    expected = 16 * sum(SIZES[1:]) / sum(step.seconds for step in taken[1:])
    assert results(run, taken)["tokens_per_second"] == pytest.approx(expected)


@pytest.mark.full
@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("pp=2,dp=2", {"microbatches": 2, "zero": 1}),
        ("fsdp=2,tp=2", {"microbatches": 2}),
        ("dp=2", {"offload": "host", "zero": 2}),
    ],
)
def test_every_mix_has_the_losses_of_one_device(
    alone: list[float], mesh: str, options: dict[str, Any]
) -> None:
    assert losses(make_recipe(mesh, **OPTIONS, **options)) == pytest.approx(alone, rel=1e-5)


def test_rounds_take_the_examples_of_their_steps() -> None:
    given = {"batch": 16, "batch_ramp": "8:1", "optimizer": "sgd"}
    one = losses(make_recipe("dp=1", **given), end=3)
    found = losses(make_recipe("dp=2", sync_every=1, **given), end=3)
    assert found == pytest.approx(one, rel=1e-5)


def test_a_resumed_run_goes_on_in_the_ramp(alone: list[float], tmp_path: Path) -> None:
    recipe, saved = make_recipe("dp=1", **OPTIONS), 3
    keeping = Keeping(tmp_path / "run", every=saved)
    assert losses(recipe, keeping) == alone
    assert read_manifest(keeping.folder, saved)["examples"] == sum(SIZES[:saved])
    shutil.rmtree(folder_of(keeping.folder, len(SIZES)))
    assert losses(recipe, replace(keeping, resume=True)) == alone[saved:]


@pytest.mark.parametrize(
    ("ramp", "message"),
    [
        ("4", "use FIRST:STEPS, two numbers above 0, as in 4:300"),
        ("0:4", "use FIRST:STEPS"),
        ("-4:4", "use FIRST:STEPS"),
        ("3:4", "with --batch 16: the batch doubles until it is 16, and .* 4 micro.*; use 8 or 4"),
        ("16:4", "; use 8 or 4"),
        ("2:4", "; use 8 or 4"),
        ("4:5", "2 sizes below --batch 16 have equally many steps; use 4:4 or 4:6"),
        ("4:1", "; use 4:2"),
    ],
)
def test_what_is_no_ramp_is_refused(ramp: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"train: --batch-ramp {ramp}.*{message}"):
        make_recipe("dp=2", microbatches=2, batch=16, batch_ramp=ramp)


def test_no_smaller_batch_may_be_possible() -> None:
    with pytest.raises(ValueError, match="use a larger --batch"):
        make_recipe("dp=2", batch=6, batch_ramp="3:4")
    with pytest.raises(ValueError, match="each a multiple of --sync-every 2; use 8:4 or 8:6"):
        make_recipe("dp=2", sync_every=2, batch=16, batch_ramp="8:5")
