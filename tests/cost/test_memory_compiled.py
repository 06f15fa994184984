"""What compiled training steps hold, against formulas: every strategy that the library trains."""

from dataclasses import replace
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jaxpar.cost.decoder_memory import decoder_memory
from jaxpar.cost.eight_bits import CODE_BYTES, LARGEST_BYTES
from jaxpar.cost.zero import ADAM_FP32
from jaxpar.inspector.compiled import Compiled
from jaxpar.layout import describe
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.model.attention import by_tiles
from jaxpar.parallel import adam8bit
from jaxpar.train import setup
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.sent import leaves_of
from jaxpar.train.step import shardings

BATCH, SEQUENCE = 8, 64
SETTINGS = Settings(d_model=64, heads=4, kv_heads=2, d_ff=192, sequence=SEQUENCE)
make = partial(make_recipe, batch=BATCH)
RECIPES = [
    make("dp=2", zero=1, microbatches=2, remat="none"),
    make("dp=4", zero=2, microbatches=2, remat="selective"),
    make("dp=2,fsdp=2", remat="segments"),
    make("dp=2,tp=2", remat="full"),
    make("tp=2", sequence_parallel=True, remat="none"),
    make("pp=2,dp=2", schedule="1f1b", microbatches=4),
    make("pp=2,tp=2", schedule="interleaved", microbatches=2, sequence_parallel=True),
    make("pp=2", schedule="zb-v", microbatches=4, remat="selective"),
    make("dp=2,tp=2", zero=1),
    make("fsdp=2,tp=2", microbatches=2, remat="selective"),
    make("fsdp=4", batch=16, microbatches=2, gather="step"),
    make("cp=2", zero=3, remat="selective", context="gather"),
    make("cp=2,tp=2", sequence_parallel=True, remat="full", context="ring"),
    make("pp=2,dp=2", zero=1, microbatches=4),
    make("pp=2,fsdp=2", microbatches=4, remat="full"),
    make("pp=2,fsdp=2", microbatches=4, gather="step"),
    make("pp=2,cp=2,tp=2", microbatches=2, sequence_parallel=True),
    make("pp=2,dp=2,fsdp=2,tp=2", batch=16, microbatches=2),
    make("dp=2,tp=4", zero=1),
    make("cp=2", zero=1, remat="none"),
    make("cp=2,tp=2", remat="none"),
    make("pp=2,cp=2", microbatches=4, remat="none"),
    make("cp=4", zero=1, remat="none", context="ring"),
    make("cp=4", context="ulysses", remat="none"),
    make("dp=2,cp=2", context="ulysses"),
    make("dp=2,cp=4"),
    make("cp=2,tp=2", remat="none", context="gather"),
    make("dp=2", attention="flash"),
    make("dp=2", attention="flash", remat="none"),
    make("tp=2", attention="flash", remat="selective"),
    make("pp=2", schedule="zb-h1", microbatches=4, attention="flash"),
    make("pp=2,cp=2", schedule="zb-h1", microbatches=4, context="ulysses", remat="selective"),
    make("pp=2", microbatches=4, remat="segments"),
    make("pp=2", schedule="zb-h1", microbatches=4),
    make("pp=2,tp=2", schedule="zb-h1", microbatches=4, remat="full", sequence_parallel=True),
    make("dp=2,tp=2", zero=1, optimizer="adam8bit"),
    make("pp=2,fsdp=2", microbatches=4, optimizer="adam8bit"),
    make("dp=2", remat="alternate"),
    make("tp=2", attention="flash", sequence_parallel=True, remat="alternate"),
    make("cp=2,tp=2", zero=1, remat="alternate"),
    make("pp=2,dp=2", microbatches=4, remat="alternate"),
    make("pp=2", schedule="zb-h1", microbatches=4, remat="alternate"),
]
EACH = {
    "adamw": (ADAM_FP32, 0),
    "adam8bit": (replace(ADAM_FP32, optimizer=CODE_BYTES), LARGEST_BYTES),
}
MIXED = replace(SETTINGS, experts=4, top_k=2, d_ff=64)
SHARED = replace(MIXED, shared_experts=2)
EXPERTS = [
    (MIXED, make("dp=2,ep=2")),
    (MIXED, make("ep=2,tp=2", sequence_parallel=True, zero=1)),
    (MIXED, make("dp=2,ep=2", remat="selective")),
    (SHARED, make("ep=2,tp=2", sequence_parallel=True, zero=1, remat="selective")),
    (SHARED, make("dp=2,ep=2")),
    (SHARED, make("ep=2,tp=2", zero=1)),
    (SHARED, make("ep=2,tp=2", remat="full")),
    (SHARED, make("dp=2,ep=2", remat="segments")),
    (replace(SHARED, capacity_factor=1.25), make("dp=2,ep=2", remat="selective")),
    (SHARED, make("ep=2,tp=2", sequence_parallel=True, zero=1, remat="alternate")),
]
LORA = replace(SETTINGS, adapter_rank=8)
NF4 = replace(LORA, d_model=256, d_ff=256, base_bits=4)
ADAPTED = [
    (LORA, make("dp=2")),
    (LORA, make("dp=2,tp=2", remat="selective")),
    (LORA, make("fsdp=4", gather="step")),
    (LORA, make("dp=2,tp=2", remat="alternate")),
    (NF4, make("fsdp=2,tp=2", microbatches=2)),
    (replace(NF4, base_bits=8), make("dp=2", zero=1, remat="full")),
]
every_recipe = pytest.mark.parametrize(
    "recipe",
    RECIPES,
    ids=lambda recipe: (
        f"{recipe.schedule} {describe(recipe.layout)}, gather {recipe.gather}, "
        f"{recipe.attention}, {recipe.optimizer.name}"
    ),
)


@cache
def compiled(recipe: Recipe, layers: int, settings: Settings = SETTINGS) -> Any:
    """The memory of one device in a step, as XLA reports it; the step does not run."""
    settings, mesh = replace(settings, layers=layers), make_mesh(recipe.layout.mesh_sizes)
    tokens = jax.ShapeDtypeStruct(
        (recipe.batch, SEQUENCE + 1),
        jnp.int32,
        sharding=shardings(mesh, P(recipe.layout.batch_axes)),
    )

    def compile_program(lowered: jax.stages.Lowered, **_: bool) -> Compiled:
        options: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}
        return Compiled(lowered.compile(options), None, "")

    with (
        patch.object(setup, "_call_once", jax.eval_shape),
        patch.object(setup, "compile_program", compile_program),
        patch.object(adam8bit, "SLICE", 1 << 9),  # little of a layer of this small model
        patch.object(setup, "_report", lambda *of: of[-1].executable.memory_analysis()),
    ):
        return setup.set_up(settings, recipe, mesh, tokens, 0, None).report


def depths(recipe: Recipe) -> tuple[int, int]:
    """Two numbers of layers, which segments, or the stages, divide evenly."""
    if recipe.layout.remat == "segments":
        return 4, 16
    stages = recipe.table.stages if recipe.table else 1
    return 2 * stages, 4 * stages


def predicted(recipe: Recipe, layers: int, settings: Settings = SETTINGS) -> dict[str, float]:
    """Bytes of each term of a step of so many layers."""
    settings = replace(settings, layers=layers)
    each, block_bytes = EACH[recipe.optimizer.name]
    terms = decoder_memory(
        settings.architecture,
        recipe.layout,
        leaves_of(settings, recipe.layout),
        batch=recipe.batch,
        sequence=SEQUENCE,
        each=each,
        block_bytes=block_bytes,
        table=recipe.table,
        gathers_layers=recipe.gathers_layers,
        tiles=by_tiles(recipe.attention, SEQUENCE),
        adapter_rank=settings.adapter_rank,
    )
    return {term.name: float(term.value) for term in terms}


@pytest.mark.full
@every_recipe
def test_arguments_are_exact(recipe: Recipe, settings: Settings = SETTINGS) -> None:
    layers, _ = depths(recipe)
    held = predicted(recipe, layers, settings)
    tokens, steps = recipe.batch // recipe.layout.batch_parts * (SEQUENCE + 1), 1
    states = held["parameters"] + held.get("base", 0) + held["optimizer"]
    expected = states + 4 * (tokens + steps)
    assert compiled(recipe, layers, settings).argument_size_in_bytes == expected


@pytest.mark.full
@every_recipe
def test_more_layers_add_what_they_keep_and_their_gradients(
    recipe: Recipe, settings: Settings = SETTINGS
) -> None:
    less, more = depths(recipe)
    with_less, with_more = (compiled(recipe, layers, settings) for layers in (less, more))
    added = with_more.temp_size_in_bytes - with_less.temp_size_in_bytes
    small, large = (predicted(recipe, layers, settings) for layers in (less, more))
    grown = {name: large[name] - small[name] for name in large}
    kept = grown.pop("kept") + grown.pop("halves", 0)
    gradients = sum(grown.pop(name, 0) for name in ("found", "summed", "gathered"))
    assert set(grown) - {"base"} == {"parameters", "optimizer"}
    assert added - gradients == pytest.approx(kept, rel=0.1)


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "recipe"),
    EXPERTS,
    ids=[
        f"{s.shared_experts} shared {s.capacity_factor} {describe(recipe.layout)}"
        for s, recipe in EXPERTS
    ],
)
def test_so_do_layers_of_experts(settings: Settings, recipe: Recipe) -> None:
    test_arguments_are_exact(recipe, settings)
    test_more_layers_add_what_they_keep_and_their_gradients(recipe, settings)


@pytest.mark.full
@pytest.mark.parametrize(
    ("settings", "recipe"),
    ADAPTED,
    ids=[f"{s.base_bits} {describe(recipe.layout)}" for s, recipe in ADAPTED],
)
def test_so_do_adapters_beside_a_base(settings: Settings, recipe: Recipe) -> None:
    test_arguments_are_exact(recipe, settings)
    test_more_layers_add_what_they_keep_and_their_gradients(recipe, settings)


@pytest.mark.parametrize(
    ("options", "settings", "line"),
    [
        ({"remat": "none"}, MIXED, "experts with remat 'none': what is kept"),
        (
            {"mesh": "pp=2,ep=2", "schedule": "zb-h1", "microbatches": 4},
            MIXED,
            "experts in a schedule whose backward passes have two halves",
        ),
    ],
)
def test_what_is_kept_of_experts_is_not_always_known(
    options: dict[str, Any], settings: Settings, line: str
) -> None:
    with pytest.raises(ValueError, match=line):
        predicted(make(**{"mesh": "ep=2"} | options), 2, settings)
