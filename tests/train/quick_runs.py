"""Runs that begin soon, since their programs are compiled quickly."""

from unittest.mock import patch

from jaxpar.mesh import make_mesh
from jaxpar.train import setup
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.recipe import Recipe
from jaxpar.train.run import Run, begin
from jaxpar.train.text import Text
from jaxpar.train.validation import Validating
from tests.train.runs import SETTINGS, compile_quickly


def begin_quickly(
    text: Text,
    recipe: Recipe,
    keeping: Keeping | None = None,
    validating: Validating | None = None,
) -> Run:
    """A run of the small model on this text."""
    mesh = make_mesh(recipe.layout.mesh_sizes)
    with patch.object(setup, "compile_program", compile_quickly):
        return begin(SETTINGS, recipe, mesh, text, seed=3, keeping=keeping, validating=validating)
