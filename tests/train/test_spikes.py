"""Steps with bad gradients are skipped, by all devices alike, on every mix; a diverged run ends."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.train.checkpoint import Keeping
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.run import results
from jaxpar.train.spikes import MOST_IN_A_ROW, skipping, told
from tests.train.quick_runs import begin_quickly
from tests.train.runs import license_text

WILD = {"learning_rate": 0.05, "skip_spikes": 2.9, "batch": 8}  # so that norms jump
STEPS = 6
begun = partial(begin_quickly, license_text())


def taken(recipe: Recipe, keeping: Keeping | None = None) -> list:
    run = begun(recipe, keeping)
    steps = list(run.proceed(STEPS))
    run.close()
    return steps


@pytest.fixture(scope="module")
def alone() -> list:
    return taken(make_recipe("dp=1", **WILD))


def test_a_step_is_skipped_where_the_norm_is_far_above_its_mean(alone: list) -> None:
    mean, in_a_row = 0.0, 0
    for step in alone:
        good = not mean or step.gradient_norm <= 2.9 * mean
        if good:
            mean = 0.9 * mean + 0.1 * step.gradient_norm if mean else step.gradient_norm
        in_a_row = 0 if good else in_a_row + 1
        assert step.skipped == in_a_row
    assert 0 < sum(step.skipped > 0 for step in alone) < STEPS - 1


@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("fsdp=2,tp=2", {}),
        ("dp=2", {"precision": "fp16"}),
        ("dp=2,tp=2", {"zero": 1, "clip": 0.5}),
        ("pp=2,dp=2", {"microbatches": 2}),
        ("dp=2", {"zero": 2, "precision": "bf16"}),
        ("cp=2", {}),
    ],
)
@pytest.mark.full
def test_every_mix_skips_the_same_steps(alone: list, mesh: str, options: dict) -> None:
    one = alone
    if "precision" in options or "clip" in options:
        one = taken(make_recipe("dp=1", **WILD, **options | {"zero": None}))
    many = taken(make_recipe(mesh, **WILD, **options))
    assert [step.skipped for step in many] == [step.skipped for step in one]
    rounding = 1e-4 if "precision" not in options else 3e-2
    np.testing.assert_allclose(
        [step.loss for step in many], [step.loss for step in one], rtol=rounding
    )


def test_a_skipped_step_changes_nothing() -> None:
    optimizer = skipping(optax.adamw(0.1), 2.0)
    params = {"w": jnp.arange(4.0)}
    grads, state = {"w": jnp.ones(4)}, optimizer.init(params)
    _, state = told(optimizer, jnp.float32(2)).update(grads, state, params)
    for norm in (jnp.nan, jnp.inf, 4.1):
        moves, after = told(optimizer, jnp.float32(norm)).update(
            {"w": jnp.full(4, norm)}, state, params
        )
        jax.tree.map(np.testing.assert_array_equal, after, state._replace(skipped=jnp.int32(1)))
        assert not moves["w"].any()
    moves, after = told(optimizer, jnp.float32(4)).update(grads, state, params)
    assert moves["w"].all()
    assert after.mean == pytest.approx(0.9 * 2 + 0.1 * 4)


def test_a_resumed_run_skips_as_the_whole_one(alone: list, tmp_path) -> None:
    recipe = make_recipe("dp=1", **WILD)
    run = begun(recipe, Keeping(tmp_path / "run", every=3))
    list(itertools.islice(run.proceed(STEPS), 4))
    run.close()
    resumed = taken(recipe, Keeping(tmp_path / "run", every=3, resume=True))
    assert [step.skipped for step in resumed] == [step.skipped for step in alone[3:]]
    assert [step.loss for step in resumed] == [step.loss for step in alone[3:]]


def test_a_run_that_has_diverged_ends() -> None:
    run = begun(make_recipe("dp=1", learning_rate=1e30, skip_spikes=3.0, batch=4))
    steps = []
    with pytest.raises(ValueError, match=r"train: steps 2 to 11 were all skipped"):
        steps.extend(run.proceed(50))
    found = results(run, steps)
    assert found["skipped_steps"] == list(range(2, 2 + MOST_IN_A_ROW))
    assert found["gradient_norms"][1:] == [None] * MOST_IN_A_ROW


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"skip_spikes": 1.0}, r"--skip-spikes is 1\.0; use a factor above 1"),
        ({"skip_spikes": float("nan")}, "--skip-spikes is nan"),
        ({"skip_spikes": 3.0, "offload": "host"}, "with --offload: .* leave one of the two out"),
        ({"skip_spikes": 3.0, "sync_every": 2}, "--sync-every 2 with --skip-spikes"),
    ],
)
def test_what_cannot_be_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_recipe("dp=2", **options)
