"""Small runs of a recipe."""

import itertools
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import jax

from jaxpar.inspector.compiled import Compiled, compile_program
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.train import setup
from jaxpar.train.recipe import Recipe
from jaxpar.train.run import Run, begin
from jaxpar.train.text import read_library
from tests.compile_options import QUICKLY

# These layers can be split over 8 devices and over 4 stages, so that all runs share one model.
SETTINGS = Settings(layers=4, d_model=16, heads=8, kv_heads=2, sequence=16)
PARAMETERS = SETTINGS.parameters
ENDS = 2 * 256 * 16 + 16  # parameters of the tables and of the last norm
BATCH, STEPS = 16, 10


def trained(recipe: Recipe, settings: Settings = SETTINGS) -> tuple[Run, list[float]]:
    """A run of the recipe, and the losses of its first steps."""
    mesh = make_mesh(recipe.layout.mesh_sizes)
    with patch.object(setup, "compile_program", compile_quickly):
        run = begin(settings, recipe, mesh, read_library(), seed=3)
    losses = [step.loss for step in itertools.islice(run.steps, STEPS)]
    run.close()
    return run, losses


def compile_quickly(lowered: Any, **_: Any) -> Compiled:
    """Compiles a program with `QUICKLY`."""

    def compile_with(compiler_options: dict[str, Any]) -> jax.stages.Compiled:
        return lowered.compile(compiler_options | QUICKLY)

    program: Any = SimpleNamespace(compile=compile_with)
    return compile_program(program)
