"""What the library's own steps send is what `decoder_traffic` says, collective by collective.

They are read from the lowered step, because the inspector counts code in `shard_map` as it was
written, compiled or not.
"""

from dataclasses import replace

import numpy as np
import pytest

from jaxpar.cost.decoder_traffic import bytes_over_axes, takes_part
from jaxpar.cost.traffic import Message, step_traffic
from jaxpar.cost.zero import ADAM_FP32, ADAM_MIXED
from jaxpar.model import Settings
from jaxpar.schedules import NAMES
from jaxpar.schedules.ticks import lower
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.sent import predict, times_by_schedule
from tests.train.lowered import reported, written

LLAMA = Settings(vocabulary=64, layers=4, d_model=32, heads=8, d_ff=96, sequence=16)
GPT = Settings(
    vocabulary=64, layers=4, d_model=32, heads=8, kv_heads=2, d_ff=96, sequence=16,
    norm="layer", positions="learned", mlp="gelu", tied=True,
)  # fmt: skip
Sent = tuple[str, tuple[str, ...], float]
"""Kind, axes, and bytes that a device gives in."""


def found(recipe: Recipe, settings: Settings) -> dict[Sent, np.ndarray]:
    """How often each stage sends each collective, as the schedule runs."""
    times: dict[Sent, np.ndarray] = {}
    for one in written(recipe, settings):
        key = one.kind, one.axes, one.operand_bytes
        times[key] = times.get(key, 0) + times_by_schedule(one, recipe)
    return times


def predicted(recipe: Recipe, settings: Settings) -> dict[Sent, np.ndarray]:
    """The same, by the formulas."""
    times: dict[Sent, np.ndarray] = {}
    for one in predict(settings, recipe):
        key = one.kind, one.axes, float(one.operand_bytes)
        here = takes_part(one, recipe.layout, recipe.table)
        times[key] = times.get(key, 0) + here * float(one.times)
    return times


def by_the_standard(recipe: Recipe, settings: Settings) -> list[Message]:
    """What `step_traffic` says of a step."""
    return step_traffic(
        settings.architecture,
        recipe.layout,
        batch=recipe.batch,
        sequence=settings.sequence,
        each=ADAM_FP32 if recipe.precision == "fp32" else ADAM_MIXED,
        element_bytes=4 if recipe.precision == "fp32" else 2,
        scatter_gather=False,
    )


def compare(recipe: Recipe, settings: Settings) -> None:
    """Compares collective by collective."""
    expected = {key: times.tolist() for key, times in predicted(recipe, settings).items()}
    got = {key: times.tolist() for key, times in found(recipe, settings).items()}
    assert got == expected


def show(recipe: Recipe) -> str:
    layout = recipe.layout
    schedule = recipe.table and recipe.schedule
    gather = recipe.gather == "step" and "gather=step"
    told = (
        layout.cp > 1 and layout.context,
        gather,
        schedule,
        layout.remat,
        recipe.precision,
        layout.sequence_parallel and "sequence",
    )
    return " ".join(filter(None, (layout.mesh, layout.zero and f"zero={layout.zero}", *told)))


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("dp=8", microbatches=2),
        make_recipe("dp=8", precision="bf16"),
        make_recipe("dp=8", zero=1, microbatches=2),
        make_recipe("dp=8", zero=2, microbatches=2, precision="bf16"),
        make_recipe("dp=8", zero=2, precision="fp16"),
        make_recipe("dp=2,fsdp=4", zero=1, precision="bf16"),
        make_recipe("dp=2,fsdp=4", zero=2, microbatches=2),
        make_recipe("tp=8", remat="none", microbatches=4, precision="bf16"),
        make_recipe("tp=4", remat="selective", sequence_parallel=True),
        make_recipe("dp=2,tp=4", microbatches=2),
        make_recipe("dp=4,tp=2", remat="selective", precision="bf16"),
        make_recipe("tp=4", sequence_parallel=True, microbatches=2),
        make_recipe("dp=2,tp=4", zero=1, microbatches=2),
        make_recipe("fsdp=2,tp=2", zero=2, microbatches=2, precision="bf16"),
    ],
    ids=show,
)
def test_most_strategies_send_what_the_standard_way_sends(recipe: Recipe) -> None:
    settings = GPT if recipe.layout.tp <= GPT.key_heads else LLAMA
    compare(recipe, settings)
    ours = [one for one in predict(settings, recipe) if one.operand_bytes > 4]  # no single numbers
    standard = bytes_over_axes(by_the_standard(recipe, settings), recipe.layout)
    assert bytes_over_axes(ours, recipe.layout) == pytest.approx(standard)


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("dp=8", zero=3, microbatches=2),
        make_recipe("fsdp=8", remat="full", precision="bf16"),
        make_recipe("dp=2,fsdp=4", microbatches=2),
        make_recipe("fsdp=4", remat="segments"),
        make_recipe("tp=4", remat="full"),
        make_recipe("fsdp=4", remat="alternate"),
        make_recipe("dp=2,tp=4", remat="alternate", sequence_parallel=True),
        make_recipe("tp=4", remat="segments", precision="bf16"),
        make_recipe("tp=4", remat="full", sequence_parallel=True, precision="bf16"),
        make_recipe("dp=2,tp=4", remat="segments", sequence_parallel=True),
        make_recipe("dp=2,tp=4", sequence_parallel=True, microbatches=2, precision="bf16"),
        make_recipe("dp=4,tp=2", sequence_parallel=True),
        make_recipe("tp=8", microbatches=2),
        make_recipe("pp=4", microbatches=8, precision="bf16"),
        make_recipe("pp=2,dp=2,tp=2", microbatches=4, remat="full", precision="bf16"),
    ],
    ids=show,
)
def test_some_strategies_differ_from_it(recipe: Recipe) -> None:
    for settings in (LLAMA, GPT):
        compare(recipe, settings)


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("cp=4", microbatches=2, precision="bf16", context="gather"),
        make_recipe("dp=2,cp=2", remat="none", context="gather"),
        make_recipe("dp=2,cp=2", remat="full", context="gather"),
        make_recipe("dp=2,cp=2", remat="segments", context="gather"),
        make_recipe("cp=2,tp=2", remat="alternate", context="gather"),
        make_recipe("cp=2,tp=2", sequence_parallel=True, context="gather"),
        make_recipe("dp=2,cp=2,tp=4", microbatches=2, remat="selective", context="gather"),
    ],
    ids=show,
)
def test_keys_and_values_are_gathered(recipe: Recipe) -> None:
    for settings in (LLAMA, GPT):
        compare(recipe, settings)


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("cp=4", microbatches=2, precision="bf16"),
        make_recipe("cp=2", context="ring", precision="fp16"),
        make_recipe("cp=4", context="ring", remat="none"),
        make_recipe("dp=2,cp=2", remat="full", precision="bf16"),
        make_recipe("dp=2,cp=2", remat="segments", zero=1),
        make_recipe("cp=2", remat="alternate", zero=1),
        make_recipe("cp=2,tp=4", sequence_parallel=True, context="ring", remat="selective"),
        make_recipe("fsdp=2,cp=4", microbatches=2, precision="bf16"),
        make_recipe("fsdp=2,cp=2,tp=2", remat="full", context="ring", sequence_parallel=True),
    ],
    ids=show,
)
def test_keys_and_values_go_round_a_ring(recipe: Recipe) -> None:
    for settings in (LLAMA, GPT):
        compare(recipe, settings)


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("cp=4", microbatches=2, precision="bf16", context="ulysses"),
        make_recipe("cp=8", context="ulysses", remat="none"),
        make_recipe("dp=2,cp=4", remat="full", precision="bf16", context="ulysses"),
        make_recipe("dp=2,cp=2", remat="segments", zero=1, context="ulysses"),
        make_recipe("cp=2,tp=4", sequence_parallel=True, remat="selective", context="ulysses"),
        make_recipe("fsdp=2,cp=2,tp=2", microbatches=2, context="ulysses"),
        make_recipe("pp=2,cp=4", microbatches=4, schedule="zb-h1", context="ulysses"),
    ],
    ids=show,
)
def test_heads_are_exchanged_for_positions(recipe: Recipe) -> None:
    for settings in (LLAMA, GPT):
        compare(recipe, settings)


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("dp=2,tp=2", zero=1, microbatches=2, sequence_parallel=True),
        make_recipe("dp=2,fsdp=2,tp=2", zero=2, microbatches=2, sequence_parallel=True),
        make_recipe("dp=2,tp=4", zero=3, remat="full", sequence_parallel=True, precision="bf16"),
        make_recipe("fsdp=2,tp=4", microbatches=2),
        make_recipe("fsdp=4", gather="step", microbatches=2, remat="none"),
        make_recipe("dp=2,cp=2", zero=1, context="gather"),
        make_recipe("dp=2,fsdp=2,cp=2", microbatches=2, context="gather"),
        make_recipe("pp=2,dp=2", zero=1, microbatches=4),
        make_recipe("pp=2,fsdp=2", microbatches=4, schedule="zb-h1"),
        make_recipe("pp=2,fsdp=2", microbatches=4, schedule="dualpipe-v", remat="full"),
        make_recipe("pp=2,fsdp=2", microbatches=4, schedule="interleaved", remat="segments"),
        make_recipe("pp=2,cp=2,tp=2", zero=1, microbatches=4, sequence_parallel=True),
        make_recipe("pp=2,dp=2,tp=4", microbatches=4),
        make_recipe("pp=2,dp=2,fsdp=2,tp=2", microbatches=4, sequence_parallel=True),
        make_recipe("pp=2,dp=2,fsdp=2,tp=2", microbatches=4, gather="step", precision="bf16"),
    ],
    ids=show,
)
def test_zero_and_pipelines_mix_with_the_other_axes(recipe: Recipe) -> None:
    for settings in (LLAMA, GPT):
        compare(recipe, settings)


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("fsdp=8,cp=2", zero=1, context="gather"),
        make_recipe("fsdp=8,cp=2", microbatches=2, context="gather"),
        make_recipe("pp=2,fsdp=4,cp=2", microbatches=2, schedule="gpipe"),
        make_recipe("dp=16", zero=2, precision="bf16"),
    ],
    ids=show,
)
def test_what_the_devices_do_not_divide_is_shared_by_fewer(recipe: Recipe) -> None:
    settings = replace(LLAMA, d_model=12, heads=2)
    compare(recipe, settings)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("remat", ["products", "full"])
def test_every_schedule_sends_what_its_actions_and_ticks_need(name: str, remat: str) -> None:
    recipe = make_recipe("pp=2,dp=2,tp=2", schedule=name, microbatches=4, remat=remat)
    compare(recipe, LLAMA)


@pytest.mark.parametrize("name", NAMES)
def test_of_these_arrays_a_stage_between_others_needs_what_the_standard_way_sends(
    name: str,
) -> None:
    recipe = make_recipe("pp=4", schedule=name, microbatches=8)
    settings = replace(LLAMA, layers=8)
    permutes = [one for one in by_the_standard(recipe, settings) if one.kind == "permute"]
    assert recipe.table
    needed = lower(recipe.table, keep_inputs=False).transfers
    assert [2 * one.times for one in permutes] == [needed, needed]


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("pp=2,tp=2", microbatches=2, sequence_parallel=True),
        make_recipe(
            "pp=2,tp=2", microbatches=4, sequence_parallel=True, remat="full", precision="bf16"
        ),
        make_recipe("pp=2,tp=2", microbatches=4, sequence_parallel=True, schedule="zb-h1"),
    ],
    ids=show,
)
def test_stages_may_split_positions(recipe: Recipe) -> None:
    compare(recipe, LLAMA)


@pytest.mark.full
def test_a_compiled_step_reports_the_same() -> None:
    small = Settings(layers=1, d_model=16, heads=2, sequence=8, vocabulary=32)
    recipe = make_recipe("dp=2,tp=2", remat="full")
    assert reported(recipe, small) == written(recipe, small)
