"""What the library's own steps send is what `step_traffic` says, collective by collective.

They are read from the lowered step, because the inspector counts code in `shard_map` as it was
written, compiled or not. Where our program differs from Megatron-LM, DeepSpeed and FSDP, `ours`
says how and why.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.inspector.report import Collective, Report
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.schedules import NAMES
from jaxpar.schedules.ticks import lower
from jaxpar.train import setup
from jaxpar.train.recipe import Recipe, make_recipe
from tests.cost.own_traffic import Entry, entry, expected, ours

LLAMA = Settings(vocabulary=64, layers=4, d_model=32, heads=8, d_ff=96, sequence=16)
GPT = Settings(
    vocabulary=64, layers=4, d_model=32, heads=8, kv_heads=2, d_ff=96, sequence=16,
    norm="layer", positions="learned", mlp="gelu", tied=True,
)  # fmt: skip
Sent = tuple[str, tuple[str, ...], float]
"""Kind, axes, and bytes that a device gives in."""


def written(recipe: Recipe, settings: Settings) -> tuple[Collective, ...]:
    """The collectives of a step that is lowered, and not compiled."""

    def report(_recipe: Recipe, lowered: jax.stages.Lowered, _compiled: object) -> Report:
        return Report(read_module(lowered.compiler_ir("stablehlo")))

    nothing = SimpleNamespace(executable=None)
    with patch.multiple(setup, _report=report, compile_program=lambda *_, **__: nothing):
        return reported(recipe, settings)


def reported(recipe: Recipe, settings: Settings) -> tuple[Collective, ...]:
    """The collectives of a step whose parameters have no values."""
    mesh = make_mesh(recipe.layout.mesh_sizes)
    sharding = NamedSharding(mesh, P(recipe.layout.batch_axes))
    batch = jax.ShapeDtypeStruct(
        (recipe.batch, settings.sequence + 1), jnp.int32, sharding=sharding
    )
    with patch.object(setup, "_call_once", jax.eval_shape):
        return setup.set_up(settings, recipe, mesh, batch, 0, None).report.collectives


def found(recipe: Recipe, settings: Settings) -> Counter[Sent]:
    """How often a step sends each collective, without single numbers: losses, norms, overflows."""
    times: Counter[Sent] = Counter()
    for one in written(recipe, settings):
        if one.operand_bytes > 4 or one.dtype not in ("float32", "int32"):
            times[one.kind, one.axes, one.operand_bytes] += one.times
    return times


def show(recipe: Recipe) -> str:
    layout = recipe.layout
    schedule = recipe.table and recipe.schedule
    gather = recipe.gather == "step" and "gather=step"
    told = (
        gather,
        schedule,
        layout.remat,
        recipe.precision,
        layout.sequence_parallel and "sequence",
    )
    return " ".join(filter(None, (layout.mesh, layout.zero and f"zero={layout.zero}", *told)))


def compare(recipe: Recipe, settings: Settings, entries: Iterable[Entry]) -> None:
    """Compares activations one by one, and bytes and number of parameters and gradients by axis."""
    rest, states = found(recipe, settings), Counter()
    for one in entries:
        if one.arrays is None:
            rest[one.kind, one.axes, one.operand_bytes] -= one.times
        else:
            states[one.kind, one.axes, "bytes"] += one.times * one.operand_bytes
            states[one.kind, one.axes, "number"] += one.times * one.arrays
    assert min(rest.values()) >= 0, rest
    got = Counter()
    for (kind, axes, operand_bytes), times in rest.items():
        got[kind, axes, "bytes"] += times * operand_bytes
        got[kind, axes, "number"] += times
    assert +got == +states


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
    compare(recipe, settings, (entry(one, settings) for one in expected(recipe, settings)))


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("dp=8", zero=3, microbatches=2),
        make_recipe("fsdp=8", remat="full", precision="bf16"),
        make_recipe("dp=2,fsdp=4", microbatches=2),
        make_recipe("fsdp=4", remat="segments"),
        make_recipe("tp=4", remat="full"),
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
def test_some_strategies_differ_as_is_said_here(recipe: Recipe) -> None:
    for settings in (LLAMA, GPT):
        compare(recipe, settings, ours(recipe, settings))


@pytest.mark.parametrize(
    "recipe",
    [
        make_recipe("cp=4", microbatches=2, precision="bf16", context="gather"),
        make_recipe("dp=2,cp=2", remat="none", context="gather"),
        make_recipe("dp=2,cp=2", remat="full", context="gather"),
        make_recipe("dp=2,cp=2", remat="segments", context="gather"),
        make_recipe("cp=2,tp=2", sequence_parallel=True, context="gather"),
        make_recipe("dp=2,cp=2,tp=4", microbatches=2, remat="selective", context="gather"),
    ],
    ids=show,
)
def test_keys_and_values_are_gathered(recipe: Recipe) -> None:
    for settings in (LLAMA, GPT):
        compare(recipe, settings, ours(recipe, settings))


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
        compare(recipe, settings, ours(recipe, settings))


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
    compare(recipe, settings, ours(recipe, settings))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("remat", ["products", "full"])
def test_pipelines_send_in_every_tick(name: str, remat: str) -> None:
    recipe = make_recipe("pp=2,dp=2,tp=2", schedule=name, microbatches=4, remat=remat)
    compare(recipe, LLAMA, ours(recipe, LLAMA))


@pytest.mark.parametrize("name", NAMES)
def test_of_these_arrays_a_stage_between_others_needs_what_the_standard_way_sends(
    name: str,
) -> None:
    recipe = make_recipe("pp=4", schedule=name, microbatches=8)
    settings = replace(LLAMA, layers=8)
    permutes = [one for one in expected(recipe, settings) if one.kind == "permute"]
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
    compare(recipe, LLAMA, ours(recipe, LLAMA))


@pytest.mark.full
def test_a_compiled_step_reports_the_same() -> None:
    small = Settings(layers=1, d_model=16, heads=2, sequence=8, vocabulary=32)
    recipe = make_recipe("dp=2,tp=2", remat="full")
    assert reported(recipe, small) == written(recipe, small)
