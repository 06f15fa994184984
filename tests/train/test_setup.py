"""Precision and offload in a whole run, alone and with sharded states."""

import pytest

from jaxpar.train.recipe import Recipe, make_recipe
from tests.train.runs import BATCH, ENDS, PARAMETERS, trained

ADAM_BYTES = 8  # two moments in float32


@pytest.mark.full
@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("fsdp=4", precision="bf16", remat="segments"),
        make_recipe("dp=4", zero=2, precision="fp16"),
        make_recipe("pp=2,dp=2", zero=1, precision="fp16", microbatches=4),
    ],
    ids=str,
)
def test_low_precision_holds_masters_and_trains(recipe: Recipe, expected: list[float]) -> None:
    run, losses, *_ = trained(recipe)
    assert losses == pytest.approx(expected, rel=0.02)
    n = recipe.layout.batch_parts
    held = ENDS + (PARAMETERS - ENDS) / recipe.layout.pp
    params = 2 * held / (n if recipe.layout.zero == 3 else 1)
    state = (4 + ADAM_BYTES) * held / (n if recipe.layout.zero else 1)
    counts = 4 + (12 if recipe.precision == "fp16" else 0)
    batch_bytes = 4 * BATCH // n * 17
    assert run.report.memory.arguments_bytes == params + state + counts + batch_bytes
    sent = [one for one in run.report.collectives if one.operand_bytes > 4]
    assert {one.dtype for one in sent} == {"bfloat16" if recipe.precision == "bf16" else "float16"}


@pytest.mark.full
@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("dp=4", zero=1, precision="fp16", offload="host"),
        make_recipe("dp=2,fsdp=2", offload="disk"),
    ],
    ids=str,
)
def test_offload_changes_no_loss(
    recipe: Recipe, expected: list[float], tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, losses, *_ = trained(recipe)
    assert losses == pytest.approx(expected, rel=1e-5 if recipe.precision == "fp32" else 0.02)
    assert not list(tmp_path.iterdir())
    item_bytes = 4 if recipe.precision == "fp32" else 2
    state = (ADAM_BYTES + (item_bytes == 2) * 4) * PARAMETERS / recipe.layout.state_shards
    assert run.moved is not None
    assert state <= run.moved.to_device_bytes == run.moved.to_store_bytes < state + 100
    assert run.moved.held_bytes < state / 4
    gathered = sum(one.times * one.operand_bytes for one in run.report.collectives
                   if one.kind == "all_gather")  # fmt: skip
    assert gathered >= item_bytes * PARAMETERS / recipe.layout.state_shards
