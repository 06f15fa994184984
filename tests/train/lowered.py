"""The collectives of a step that is lowered, and neither compiled nor run."""

from types import SimpleNamespace
from unittest.mock import patch

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.inspector.report import Collective, Report
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.train import setup
from jaxpar.train.recipe import Recipe


def written(recipe: Recipe, settings: Settings) -> tuple[Collective, ...]:
    """The collectives of a step that is lowered, and not compiled."""

    def report(_recipe: Recipe, lowered: jax.stages.Lowered, _compiled: object) -> Report:
        return Report(read_module(lowered.compiler_ir("stablehlo")))

    nothing = SimpleNamespace(executable=SimpleNamespace(as_text=None))
    with patch.multiple(setup, _report=report, compile_program=lambda *_, **__: nothing):
        return reported(recipe, settings)


def reported(recipe: Recipe, settings: Settings) -> tuple[Collective, ...]:
    """The collectives of a step whose parameters have no values."""
    mesh = make_mesh(recipe.layout.mesh_sizes)
    sharding = NamedSharding(mesh, P(recipe.layout.batch_axes))
    batch = jax.ShapeDtypeStruct(
        (recipe.batch * (recipe.sync_every or 1), settings.sequence + 1),
        jnp.int32,
        sharding=sharding,
    )
    with patch.object(setup, "_call_once", jax.eval_shape):
        return setup.set_up(settings, recipe, mesh, batch, 0, None).report.collectives
