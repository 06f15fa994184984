"""Small runs of a recipe, and the comparison with one device."""

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import numpy as np
import pytest

from jaxpar.inspector.compiled import Compiled, compile_program
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.train import setup
from jaxpar.train.optimizer import RATES
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import Run, begin
from jaxpar.train.sent import Sent
from jaxpar.train.text import Text, batches, read_library
from tests.compile_options import QUICKLY

# These layers can be split over 8 devices and over 4 stages, so that all runs share one model.
SETTINGS = Settings(layers=4, d_model=16, heads=8, kv_heads=2, sequence=16)
PARAMETERS = SETTINGS.parameters
ENDS = 2 * 256 * 16 + 16  # parameters of the tables and of the last norm
BATCH, STEPS = 16, 10
# At the trainer's rate, SGD magnifies how a sum was rounded tenfold with each step.
GENTLE = {"sgd": 0.02}


class Taken(NamedTuple):
    """A run, with what its first steps tell, and the parameters that they lead to."""

    run: Run
    losses: list[float]
    norms: list[float]
    params: Any
    loads: list[float | None]
    dropped: list[float | None]


def license_text() -> Text:
    """A text that is the same with every Python, where a run magnifies how sums are rounded."""
    return np.frombuffer((Path(__file__).parents[2] / "LICENSE").read_bytes(), np.uint8)


def trained(
    recipe: Recipe,
    settings: Settings = SETTINGS,
    *,
    steps: int = STEPS,
    order: tuple[int, ...] | None = None,
    text: Text | None = None,
) -> Taken:
    """The first steps of a run of the recipe; `order` is that of the examples in each batch."""

    def in_order(*args: Any, **sizes: Any) -> Iterator[Any]:
        return (batch[np.array(order)] for batch in batches(*args, **sizes))

    mesh = make_mesh(recipe.layout.mesh_sizes)
    with (
        patch.object(setup, "compile_program", compile_quickly),
        patch.dict(RATES, GENTLE),
        patch("jaxpar.train.run.batches", in_order if order else batches),
    ):
        run = begin(settings, recipe, mesh, read_library() if text is None else text, seed=3)
    taken = list(itertools.islice(run.steps, steps))
    params = jax.tree.map(np.asarray, taken[-1].params)
    run.close()
    losses, norms = [one.loss for one in taken], [one.gradient_norm for one in taken]
    loads, dropped = [one.largest_load for one in taken], [one.dropped for one in taken]
    return Taken(run, losses, norms, params, loads, dropped)


def assert_trains_as_one_device(
    recipe: Recipe, settings: Settings = SETTINGS, *, rel: float = 1e-5, steps: int = STEPS
) -> Run:
    """Compares losses and gradient norms, since Adam's losses do not show a wrong scale.

    Norms are those of the first steps: in float32 each step magnifies how they were rounded. What
    is sent is compared with what was predicted; these formulas are for float32.
    """
    taken = trained(recipe, settings, steps=steps)
    expected = on_one_device(
        settings, recipe.optimizer.name, recipe.clip, steps, jax.config.jax_enable_x64
    )
    assert taken.losses == pytest.approx(expected.losses, rel=rel)
    assert taken.norms[:3] == pytest.approx(expected.norms[:3], rel=rel)
    if not jax.config.jax_enable_x64:
        assert_sends_what_was_predicted(taken.run.sent)
    return taken.run


def assert_sends_what_was_predicted(sent: tuple[Sent, ...]) -> None:
    """Compares the bytes over each group of axes: they are equal."""
    measured = {one.axes: one.by_schedule_bytes for one in sent}
    assert measured == {one.axes: one.predicted_bytes for one in sent}


@cache
def on_one_device(
    settings: Settings, optimizer: str, clip: float | None, steps: int, _x64: bool
) -> Taken:
    """The same steps on one device, in the precision that JAX computes with now."""
    return trained(make_recipe("dp=1", optimizer=optimizer, clip=clip), settings, steps=steps)


def compile_quickly(lowered: Any, **_: Any) -> Compiled:
    """Compiles a program with `QUICKLY`."""

    def compile_with(compiler_options: dict[str, Any]) -> jax.stages.Compiled:
        return lowered.compile(compiler_options | QUICKLY)

    program: Any = SimpleNamespace(compile=compile_with)
    return compile_program(program)
