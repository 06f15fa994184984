"""A step put together from a loss, an optimizer and a technique."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from jaxpar.mesh import make_mesh, spec
from jaxpar.train.step import DATA_PARALLEL, Technique, make_step, shardings

OPTIMIZER = optax.adamw(0.1)
X = np.random.default_rng(5).normal(size=(12, 3)).astype(np.float32)
W = np.array([1.0, -2.0, 3.0], np.float32)


def loss_fn(params, batch):
    return jnp.mean((batch @ params["w"]) ** 2)


def split_gradients(loss_fn, params, batch):
    """The parameters split over dp and gathered for use: what a later technique may do."""

    def gathered(params, batch):
        return loss_fn({"w": lax.all_gather(params["w"], "dp", tiled=True)}, batch)

    loss, gradients = jax.value_and_grad(gathered)(params, batch)
    mean = jax.tree.map(lambda g: g / lax.axis_size("dp"), gradients)
    return lax.pmean(loss, "dp"), mean


def placed(technique, mesh):
    params_sharding, state_sharding = shardings(mesh, (technique.params, technique.state))
    params = jax.device_put({"w": jnp.asarray(W)}, params_sharding)
    return params, jax.jit(OPTIMIZER.init, out_shardings=state_sharding)(params)


@pytest.fixture(scope="module")
def expected():
    """Two steps of optax on one device."""
    params, losses = {"w": jnp.asarray(W)}, []
    state = OPTIMIZER.init(params)
    for _ in range(2):
        loss, gradients = jax.value_and_grad(loss_fn)(params, jnp.asarray(X))
        updates, state = OPTIMIZER.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        losses.append(float(loss))
    return losses, params["w"]


SPLIT_STATE = jax.tree.map(
    lambda leaf: spec("d_dp" if leaf.ndim else ""), jax.eval_shape(OPTIMIZER.init, {"w": W})
)
SPLIT = Technique(split_gradients, spec("b_dp d"), {"w": spec("d_dp")}, SPLIT_STATE)


@pytest.mark.parametrize(
    ("technique", "mesh"), [(DATA_PARALLEL, "dp=1"), (DATA_PARALLEL, "dp=4"), (SPLIT, "dp=3")]
)
def test_steps_are_those_of_one_device_and_reuse_memory(technique, mesh, expected) -> None:
    mesh = make_mesh(mesh)
    step = make_step(loss_fn, OPTIMIZER, technique, mesh)
    first = params, state = placed(technique, mesh)
    batch = jax.device_put(jnp.asarray(X), shardings(mesh, technique.batch))
    losses = []
    for _ in range(2):
        params, state, loss = step(params, state, batch)
        losses.append(float(loss))
    assert losses == pytest.approx(expected[0], rel=1e-5)
    np.testing.assert_allclose(params["w"], expected[1], rtol=1e-5)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(first))
    assert step._cache_size() == 1  # the results have the shardings of the arguments
