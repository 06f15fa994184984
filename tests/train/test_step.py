"""A step put together from gradients, an optimizer and the layouts of its parameters."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.collectives.leaves import fetch, leaf_layouts
from jaxpar.mesh import make_mesh, spec
from jaxpar.parallel.precision import LossScaling
from jaxpar.parallel.zero import state_specs
from jaxpar.train.gradients import by_microbatches, over_devices
from jaxpar.train.step import Technique, make_step, shardings

PARAMS = {"w": np.array([[1.0, -2, 3], [0, 1, 2], [3, 1, -1]], np.float32), "b": np.zeros(3)}
PARAMS = jax.tree.map(partial(np.asarray, dtype=np.float32), PARAMS)
X = np.random.default_rng(5).normal(size=(12, 3)).astype(np.float32)
MAX_NORM = 2.0  # which is less than the norm of the first steps
# The decay is of matrices only, as is usual.
MATRICES = partial(jax.tree.map, lambda leaf: leaf.ndim > 1)
ADAMW = optax.adamw(0.1, weight_decay=0.1, mask=MATRICES)


def loss_fn(params: Any, batch: jax.Array) -> jax.Array:
    return jnp.mean((batch @ params["w"] + params["b"][None]) ** 2)


def technique(stage: int, n: int, microbatches: int) -> Technique:
    layouts = leaf_layouts(PARAMS, sizes={"dp": n}, axes=("dp",), stage=stage)

    def loss_of_shards(shards: Any, batch: jax.Array) -> jax.Array:
        return loss_fn(fetch(shards, layouts), batch)

    loss = loss_of_shards if stage == 3 else loss_fn
    find = by_microbatches(loss, layouts, microbatches=microbatches, scatters=stage == 2)
    summed = over_devices(find, layouts, axes=("dp",), parts=n, by_shards=stage > 1)
    return Technique(summed, layouts, spec("b_dp d"))


@pytest.fixture(scope="module")
def expected() -> tuple[list[float], list[float], Any]:
    """Losses, norms and parameters of three steps of optax on one device."""
    optimizer = optax.chain(optax.clip_by_global_norm(MAX_NORM), ADAMW)
    params, losses, norms = jax.tree.map(jnp.asarray, PARAMS), [], []
    state = optimizer.init(params)
    for _ in range(3):
        loss, gradients = jax.value_and_grad(loss_fn)(params, jnp.asarray(X))
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        losses.append(float(loss))
        norms.append(float(optax.tree.norm(gradients)))
    assert min(norms) > MAX_NORM
    return losses, norms, params


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize(("n", "microbatches"), [(1, 1), (2, 3), (3, 2)])
def test_steps_are_those_of_one_device_and_reuse_memory(
    stage: int, n: int, microbatches: int, expected: Any
) -> None:
    mesh, how = make_mesh({"dp": n}), technique(stage, n, microbatches)
    step = make_step(how, ADAMW, mesh, max_norm=MAX_NORM)
    specs = how.params, state_specs(ADAMW, how.layouts)
    first = params, state = jax.device_put((PARAMS, ADAMW.init(PARAMS)), shardings(mesh, specs))
    batch = jax.device_put(jnp.asarray(X), shardings(mesh, how.batch))
    losses, norms = [], []
    for _ in range(3):
        params, state, measures = step(params, state, batch)
        losses.append(float(measures.loss))
        norms.append(float(measures.gradient_norm))
    assert losses == pytest.approx(expected[0], rel=1e-5)
    assert norms == pytest.approx(expected[1], rel=1e-5)
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(expected[2]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(first))
    assert step._cache_size() == 1  # the results have the shardings of the arguments


def test_a_step_that_overflows_changes_only_the_loss_scale() -> None:
    mesh, how, scaling = make_mesh("dp=2"), technique(1, 2, 1), LossScaling()
    step = make_step(how, ADAMW, mesh, scaling=scaling)
    specs = how.params, (state_specs(ADAMW, how.layouts), spec(""))
    given = PARAMS, (ADAMW.init(PARAMS), scaling.init())
    params, state = jax.device_put(given, shardings(mesh, specs))
    before = int(state[1].spare)
    batch = jax.device_put(jnp.asarray(X) * np.float32(1e18), shardings(mesh, how.batch))
    params, (state, scale), measures = step(params, state, batch)
    assert not np.isfinite(measures.gradient_norm)
    assert int(scale.spare) < before
    for one, other in zip(jax.tree.leaves(params), jax.tree.leaves(PARAMS), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(state))
