"""What compiled training steps hold, against formulas: every strategy that the library trains."""

import math
from dataclasses import replace
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jaxpar.cost.kept import decoder_arrays
from jaxpar.cost.memory import training_memory
from jaxpar.cost.terms import Term, total
from jaxpar.cost.zero import ADAM_FP32
from jaxpar.inspector.compiled import Compiled
from jaxpar.layout import describe
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.schedules.ticks import lower
from jaxpar.train import setup
from jaxpar.train.recipe import Recipe, make_recipe
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
    make("cp=2", zero=3, remat="selective"),
    make("cp=2,tp=2", sequence_parallel=True, remat="full"),
    make("pp=2,dp=2", zero=1, microbatches=4),
    make("pp=2,fsdp=2", microbatches=4, remat="full"),
    make("pp=2,fsdp=2", microbatches=4, gather="step"),
    make("pp=2,cp=2,tp=2", microbatches=2, sequence_parallel=True),
    make("pp=2,dp=2,fsdp=2,tp=2", batch=16, microbatches=2),
]
every_recipe = pytest.mark.parametrize(
    "recipe",
    RECIPES,
    ids=lambda recipe: f"{recipe.schedule} {describe(recipe.layout)}, gather {recipe.gather}",
)


@cache
def compiled(recipe: Recipe, layers: int) -> Any:
    """The memory of one device in a step, as XLA reports it; the step does not run."""
    settings, mesh = replace(SETTINGS, layers=layers), make_mesh(recipe.layout.mesh_sizes)
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
        patch.object(setup, "_report", lambda *of: of[-1].executable.memory_analysis()),
    ):
        return setup.set_up(settings, recipe, mesh, tokens, 0, None).report


def depths(recipe: Recipe) -> tuple[int, int]:
    """Two numbers of layers, which segments, or the stages, divide evenly."""
    if recipe.layout.remat == "segments":
        return 4, 16
    stages = recipe.table.stages if recipe.table else 1
    return 2 * stages, 4 * stages


def states(recipe: Recipe, layers: int, *, zero: int) -> dict[str, float]:
    """Bytes of the states of training, with all that is outside of the layers on every stage."""
    stages = recipe.layout.pp
    model = replace(SETTINGS, layers=layers // stages).architecture
    layout = replace(recipe.layout, pp=1, zero=zero, remat="full")  # the states have no remat
    terms = training_memory(model, layout, sequence=SEQUENCE, each=ADAM_FP32)
    return {term.name: term.value for term in terms}


def gradient_bytes(recipe: Recipe, layers: int) -> float:
    """The gradients of the last microbatch, and if there are several, also their sum.

    JAX computes the gradients of all layers before it scatters any of them; but in stage 3 it
    scatters those of each layer as soon as they are computed. If stage 3 gathers everything once a
    step, it holds everything, and scatters only the sum.
    """
    zero = recipe.layout.zero
    whole, sharded = (states(recipe, layers, zero=stage)["gradients"] for stage in (0, zero))
    found = sharded if recipe.gathers_layers else whole
    total = whole if recipe.gather == "step" else sharded
    return found + (total if recipe.microbatches > 1 else 0)


def gathered_bytes(recipe: Recipe, layers: int) -> float:
    """The parameters of all layers, if stage 3 gathers them once a step."""
    return states(recipe, layers, zero=0)["parameters"] if recipe.gather == "step" else 0


def kept_bytes(recipe: Recipe, layers: int) -> float:
    """The bytes that all layers of a device keep for the backward pass."""
    arrays = decoder_arrays(SETTINGS.architecture, recipe.layout, sequence=SEQUENCE)
    kept = total(arrays)
    if recipe.layout.remat == "segments":
        segments = math.isqrt(layers)
        # In one segment the parameters and gradients of its layers stand apart.
        of_layers = 2 * states(recipe, layers, zero=recipe.layout.zero)["parameters"]
        return segments * kept + (layers * kept + of_layers) / segments
    if not recipe.table:
        return layers * kept
    # The result of the current microbatch's forward or backward is held beside the slots.
    slots = lower(recipe.table, keep_inputs=False)
    in_flight = (slots.stash_slots + 1) * kept
    if slots.half_slots > 1:
        in_flight += (slots.half_slots + 1) * half_bytes(arrays)
    return layers / recipe.table.stages * in_flight


def half_bytes(arrays: list[Term]) -> float:
    """What an input gradient keeps for the weight gradient: the gradient of each result.

    Four are as large as a layer's input: those of attention, of the MLP, and of both norms.
    """
    by_name = {array.name: array.value for array in arrays}
    made = ("queries", "keys", "values", "gate", "up")
    return sum(by_name[name] for name in made) + 4 * by_name["layer input"]


@pytest.mark.full
@every_recipe
def test_arguments_are_exact(recipe: Recipe) -> None:
    layers, _ = depths(recipe)
    held = states(recipe, layers, zero=recipe.layout.zero)
    tokens, steps = recipe.batch // recipe.layout.batch_parts * (SEQUENCE + 1), 1
    expected = held["parameters"] + held["optimizer"] + 4 * (tokens + steps)
    assert compiled(recipe, layers).argument_size_in_bytes == expected


@pytest.mark.full
@every_recipe
def test_more_layers_add_what_they_keep_and_their_gradients(recipe: Recipe) -> None:
    less, more = depths(recipe)
    added = compiled(recipe, more).temp_size_in_bytes - compiled(recipe, less).temp_size_in_bytes
    expected = kept_bytes(recipe, more) - kept_bytes(recipe, less)
    for held in (gradient_bytes, gathered_bytes):
        added -= held(recipe, more) - held(recipe, less)
    assert added == pytest.approx(expected, rel=0.1)
