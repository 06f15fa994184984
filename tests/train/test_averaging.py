"""The average of the parameters: what it is, on every mix, and that it is validated and saved."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.model import loss_fn
from jaxpar.train.averaging import averaging
from jaxpar.train.checkpoint import OPTIMIZER, Keeping, parts_of
from jaxpar.train.manifest import folder_of
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.text import read_library
from jaxpar.train.validation import Validating
from tests.train.quick_runs import begin_quickly
from tests.train.runs import SETTINGS

TEXT = read_library()[:16_000]
EACH = Validating(2, 0.1)
DECAY, STEPS = 0.6, 4
OPTIONS = {"average": DECAY, "learning_rate": 0.02, "batch": 8}
begun = partial(begin_quickly, TEXT, validating=EACH)


def taken(recipe: Recipe, keeping: Keeping | None = None) -> list[Any]:
    """The validations of a run, and its parameters after each step."""
    run = begun(recipe, keeping)
    found = [(jax.tree.map(np.asarray, step.params), step.validated) for step in run.proceed(STEPS)]
    run.close()
    return found


@pytest.fixture(scope="module")
def alone() -> list[Any]:
    return taken(make_recipe("dp=1", **OPTIONS))


def test_the_average_forgets_by_its_decay() -> None:
    optimizer = averaging(optax.sgd(1.0), DECAY)
    params = {"w": jnp.array([4.0, -2.0], jnp.bfloat16)}
    state, seen = optimizer.init(params), []
    assert state.average["w"].dtype == jnp.float32
    for step in range(1, 6):
        moves, state = optimizer.update({"w": jnp.ones(2, jnp.bfloat16)}, state, params)
        params = optax.apply_updates(params, moves)
        seen.append(np.asarray(params["w"], np.float32))
        weights = DECAY ** np.arange(step)[::-1]
        expected = np.average(seen, axis=0, weights=weights)
        np.testing.assert_allclose(state.average["w"], expected, rtol=1e-6)


def test_the_average_is_validated_and_not_the_last(alone: list[Any]) -> None:
    weights = DECAY ** np.arange(STEPS)[::-1] / sum(DECAY ** np.arange(STEPS))
    params = [params for params, _ in alone]
    average = jax.tree.map(lambda *leaves: sum(map(np.multiply, weights, leaves)), *params)
    held_out = TEXT[-1600:].astype(np.int32)
    numbers = np.arange(96) * 99 // 96
    examples = np.stack([held_out[16 * n : 16 * n + 17] for n in numbers])
    loss = jax.jit(loss_fn(SETTINGS))
    validated = alone[-1][1]
    assert validated.loss == pytest.approx(float(loss(average, examples)), rel=1e-5)
    assert validated.loss != pytest.approx(float(loss(params[-1], examples)), rel=1e-3)


@pytest.mark.full
@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("pp=2,dp=2", {"microbatches": 2, "zero": 1}),
        ("fsdp=2,tp=2", {"skip_spikes": 1e6}),
        ("dp=2", {"zero": 2, "precision": "bf16", "offload": "host"}),
        ("dp=2", {"compress": "int8"}),
    ],
)
def test_every_mix_has_the_average_of_one_device(
    alone: list[Any], mesh: str, options: dict[str, Any]
) -> None:
    exact = not options.keys() & {"precision", "compress"}
    found = taken(make_recipe(mesh, **OPTIONS, **options))
    assert found[-1][1].loss == pytest.approx(alone[-1][1].loss, rel=1e-5 if exact else 3e-2)


def test_the_average_is_sharded_as_the_state_is_and_changes_no_step(alone: list[Any]) -> None:
    recipe = make_recipe("dp=4", zero=1, **OPTIONS)
    run, without = begun(recipe), begun(replace(recipe, average=None))
    step, other = next(run.steps), next(without.steps)
    average = parts_of(recipe, None, step.state)[OPTIMIZER].average["layers"]["mlp"]["up"]
    assert average.dtype == jnp.float32
    assert average.addressable_shards[0].data.size == average.size // 4
    assert run.report.collectives == without.report.collectives
    assert (step.loss, step.gradient_norm) == (other.loss, other.gradient_norm)
    compare = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-7)
    jax.tree.map(compare, step.params, other.params)


def test_a_resumed_run_goes_on_with_its_average(tmp_path: Path) -> None:
    recipe = make_recipe("dp=2", zero=1, precision="bf16", **OPTIONS)
    keeping = Keeping(tmp_path / "run", every=2)
    whole = taken(recipe, keeping)
    shutil.rmtree(folder_of(keeping.folder, STEPS))
    resuming = replace(keeping, resume=True)
    with pytest.raises(ValueError, match=r"another run: average 0\.6 there, None here"):
        begun(replace(recipe, average=None), resuming)
    assert taken(recipe, resuming)[-1][1] == whole[-1][1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": 1.0}, r"--average is 1\.0; use a decay between 0 and 1"),
        ({"average": float("nan")}, "--average is nan"),
        ({"average": 0.9, "sync_every": 2}, r"--sync-every 2 with --average 0\.9: between two av"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_recipe("dp=2", **options)
