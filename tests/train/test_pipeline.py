"""A pipeline trains as one device does, and holds and sends what it should.

`tests/parallel/test_pipeline.py` computes gradients by every schedule.
"""

from pathlib import Path

import pytest

from jaxpar.model import Settings
from jaxpar.parallel.pipeline import layer_order
from jaxpar.schedules import make_table
from jaxpar.schedules.ticks import lower
from jaxpar.train.recipe import Recipe, make_recipe
from tests.train.runs import BATCH, ENDS, SETTINGS, assert_trains_as_one_device, trained


@pytest.mark.full
@pytest.mark.parametrize("name", ["1f1b", "interleaved", "dualpipe-v"])
def test_losses_are_those_of_one_device(name: str) -> None:
    recipe = make_recipe("pp=2,dp=2", schedule=name, microbatches=4)
    run = assert_trains_as_one_device(recipe)

    layers = SETTINGS.parameters - ENDS
    params = ENDS + layers / 2
    batch_bytes = 4 * BATCH // 2 * 17
    assert run.report.memory.arguments_bytes == 3 * 4 * params + batch_bytes + 4

    lowered = lower(recipe.table, keep_inputs=False)
    ticks = len(lowered.ticks.kind)
    assert lowered.transfers <= (1 if name == "dualpipe-v" else 2) * 2 * 4
    assert f"{lowered.transfers} of {2 * ticks} arrays" in run.report.notes[-2]
    permutes = [one for one in run.report.collectives if one.kind == "permute"]
    assert [one.times for one in permutes] == [ticks, ticks]
    x_bytes = 4 * BATCH // 2 // 4 * 16 * 16
    assert {one.operand_bytes for one in permutes} == {x_bytes}
    reduced = dict.fromkeys((("pp", "dp"), ("dp",)), 0)
    for one in run.report.collectives:
        if one.kind == "all_reduce" and one.operand_bytes > 4:
            reduced[one.axes] += one.times * one.operand_bytes
    assert reduced == {("pp", "dp"): 4 * ENDS, ("dp",): 4 * layers / 2}


@pytest.mark.full
@pytest.mark.parametrize("remat", ["products", "segments"])
@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "interleaved"])
def test_a_schedule_sends_less_than_the_branches_of_its_program(name: str, remat: str) -> None:
    """Over tp, each microbatch sums x twice a layer and pass, and once at each end of the model.

    With segments a stage runs twice forward, and each layer a third time, without its last sum.
    """
    m, pp, x_bytes = 4, 2, 4 * BATCH // 4 * 16 * 16
    recipe = make_recipe("pp=2,tp=2", schedule=name, microbatches=m, remat=remat)
    run = trained(recipe, steps=1).run
    (over_tp,) = (one for one in run.sent if one.axes == ("tp",))
    again = remat == "segments"
    of_layer = 2 + 2 + again * (2 + 1)
    first_stage = m * (1 + again) * x_bytes  # the embedding
    last_stage = m * x_bytes + 3 * 4 * BATCH * 16  # into the head; three numbers for each loss
    norm_bytes = 4
    expected = m * SETTINGS.layers // pp * of_layer * x_bytes + max(first_stage, last_stage)
    assert over_tp.by_schedule_bytes == expected + norm_bytes
    assert over_tp.at_most_bytes > 1.5 * over_tp.by_schedule_bytes


@pytest.mark.full
@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("pp=2,tp=2", schedule="zb-v", microbatches=4, remat="full"),
        make_recipe("pp=2,dp=2,tp=2", microbatches=2, sequence_parallel=True),
    ],
    ids=lambda recipe: recipe.layout.mesh,
)
def test_a_stage_may_be_split(recipe: Recipe) -> None:
    assert_trains_as_one_device(recipe)


@pytest.mark.full
def test_bf16_and_a_state_in_host_memory(expected: list[float]) -> None:
    recipe = make_recipe("pp=4", microbatches=8, precision="bf16", offload="host")
    assert trained(recipe).losses == pytest.approx(expected, rel=0.02)


@pytest.mark.full
def test_tied_tables_get_both_gradients() -> None:
    tied = Settings(layers=2, d_model=16, heads=2, sequence=16, tied=True, positions="learned")
    assert_trains_as_one_device(make_recipe("pp=2", schedule="gpipe", microbatches=2), tied)


def test_a_schedule_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(make_table("1f1b", 2, 4).to_csv())
    assert make_recipe("pp=2", schedule=str(path), microbatches=4).table == make_table("1f1b", 2, 4)
    with pytest.raises(ValueError, match="is for 2 devices and 4 microbatches; the mesh has pp=4"):
        make_recipe("pp=4", schedule=str(path), microbatches=4)
    path.write_text("0F0,0B0")
    with pytest.raises(ValueError, match="is for 1 devices"):
        make_recipe("pp=2", schedule=str(path))
    with pytest.raises(ValueError, match=r"none\.csv: No such file or directory; give a CSV file"):
        make_recipe("pp=2", schedule=str(tmp_path / "none.csv"))


def test_layers_fill_the_stages() -> None:
    assert list(layer_order(make_table("interleaved", 2, 2), 8)) == [0, 1, 4, 5, 2, 3, 6, 7]
    assert list(layer_order(make_table("zb-v", 2, 4), 4)) == [0, 3, 1, 2]
    with pytest.raises(ValueError, match="pipeline: 4 layers in 8 stages"):
        make_recipe("pp=4", schedule="interleaved", microbatches=4).check(SETTINGS)
