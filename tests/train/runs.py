"""Small runs of a recipe."""

import itertools
from unittest.mock import patch

from jaxpar.inspector.compiled import compile_program
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.train import setup
from jaxpar.train.recipe import Recipe
from jaxpar.train.run import Run, begin
from jaxpar.train.text import read_library

SETTINGS = Settings(layers=2, d_model=16, heads=2, sequence=16)
PARAMETERS = SETTINGS.parameters
BATCH, STEPS = 16, 20


def trained(recipe: Recipe, settings: Settings = SETTINGS) -> tuple[Run, list[float]]:
    """A run of the recipe, and the losses of its first steps."""
    mesh = make_mesh(recipe.layout.mesh_sizes)
    with patch.object(setup, "compile_program", lambda lowered, **_: compile_program(lowered)):
        run = begin(settings, recipe, mesh, read_library(), seed=3)
    losses = [step.loss for step in itertools.islice(run.steps, STEPS)]
    run.close()
    return run, losses
