"""ZeRO and split layers train as one device does, and hold and send what they should."""

import pytest

from jaxpar.model import Settings
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import Run
from tests.train.runs import BATCH, ENDS, PARAMETERS, SETTINGS, trained


def bytes_sent(run: Run, kind: str, axis: str) -> float:
    """The bytes that a step sends over an axis by one kind of collective, without losses."""
    return sum(
        one.times * one.wire_bytes
        for one in run.report.collectives
        if one.kind == kind and one.axes == (axis,) and one.operand_bytes > 4
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("dp=8", zero=1, microbatches=2),
        make_recipe("dp=8", zero=2, microbatches=2),
        make_recipe("dp=8", zero=3),
        make_recipe("dp=2,fsdp=4", zero=2),
        make_recipe("dp=2,fsdp=4", zero=3, remat="full"),
    ],
    ids=lambda recipe: f"{recipe.layout.mesh} zero={recipe.layout.zero}",
)
def test_stages_of_zero_train_as_one_device(recipe: Recipe, expected: list[float]) -> None:
    run, losses = trained(recipe)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert losses[-1] < losses[0] - 0.05

    n = recipe.layout.sizes[recipe.layout.state_axis]
    whole, batch_bytes = 4 * PARAMETERS, 4 * BATCH // recipe.layout.devices * 17
    params = whole / n if recipe.layout.zero == 3 else whole
    assert run.report.memory.arguments_bytes == params + 2 * whole / n + batch_bytes + 4

    axis, part = recipe.layout.state_axis, whole * (n - 1) / n
    layers = part - 4 * (n - 1) / n * ENDS
    gathered = part + layers if recipe.layout.zero == 3 else part
    scattered = part * recipe.microbatches if recipe.layout.zero == 2 else part
    assert bytes_sent(run, "reduce_scatter", axis) == pytest.approx(scattered)
    assert bytes_sent(run, "all_gather", axis) == pytest.approx(gathered)
    assert bytes_sent(run, "all_reduce", axis) == 0
    if len(recipe.layout.batch_axes) > 1:
        assert bytes_sent(run, "all_reduce", "dp") == pytest.approx(whole / n)


@pytest.mark.full
def test_what_does_not_divide_is_padded_unseen() -> None:
    odd = Settings(layers=1, d_model=18, heads=3, d_ff=22, vocabulary=256, sequence=16)
    whole, sharded = (trained(make_recipe(mesh), odd)[1] for mesh in ("dp=1", "fsdp=8"))
    assert sharded == pytest.approx(whole, rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("dp=2,tp=4", microbatches=2),
        make_recipe("tp=8", sequence_parallel=True),
        make_recipe("dp=2,tp=2", sequence_parallel=True, remat="full"),
    ],
    ids=lambda recipe: f"{recipe.layout.mesh} {recipe.layout.remat}",
)
def test_split_layers_train_as_whole_ones(recipe: Recipe, expected: list[float]) -> None:
    run, losses = trained(recipe)
    assert losses == pytest.approx(expected, rel=1e-5)
    n, d = recipe.layout.tp, SETTINGS.d_model
    whole = d * (2 * SETTINGS.layers + 1)  # norms
    if n > SETTINGS.key_heads:
        whole += 2 * SETTINGS.layers * d * SETTINGS.key_heads * SETTINGS.d_head
    params = (PARAMETERS - whole) / n + whole
    batch_bytes = 4 * BATCH // recipe.layout.batch_parts * 17
    assert run.report.memory.arguments_bytes == 3 * 4 * params + batch_bytes + 4
    assert bytes_sent(run, "all_reduce", "dp") == pytest.approx(4 * params if n < 8 else 0)
