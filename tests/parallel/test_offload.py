"""Offload: training stays the same, and a device holds the state of one leaf at a time."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array
from jax.sharding import Mesh, NamedSharding

from jaxpar.collectives.shards import mean_shards, shard_specs
from jaxpar.mesh import make_mesh
from jaxpar.parallel import offload, zero
from jaxpar.parallel.disk import DiskStore
from jaxpar.parallel.offload import HostStore, OffloadedState
from jaxpar.parallel.precision import master_weights
from tests.arrays import random

P = jax.P
AXIS = "dp"
STEPS = 3
ROWS = 12
WHOLE_DECAY = optax.adamw(0.1, weight_decay=0.1, mask={"w": True, "b": False, "out": True})
OPTIMIZERS = {
    "adamw": WHOLE_DECAY,
    "sgd": optax.sgd(optax.linear_schedule(0.1, 0.0, 10), momentum=0.9),
    "lion": optax.lion(0.01),
    "master": master_weights(WHOLE_DECAY),
}


PARAMS = {"w": random(5, 8), "b": random(8), "out": random(8)}
BATCH = (random(ROWS, 5), random(ROWS))


def loss_fn(params: dict, batch: tuple) -> Array:
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["w"] + params["b"][None]) @ params["out"] - y) ** 2)


class Training:
    """Stage 2 of ZeRO: gradients and state are sharded over dp, and parameters replicated."""

    def __init__(self, optimizer: optax.GradientTransformation, mesh: Mesh) -> None:
        self.optimizer, self.mesh = optimizer, mesh
        self.shards = {"axis": AXIS, "n": mesh.shape[AXIS]}
        self.params = jax.device_put(PARAMS, NamedSharding(mesh, P()))
        self.update = jax.jit(self._update, donate_argnums=(0, 1, 2))
        specs = P(), shard_specs(PARAMS, **self.shards)
        self.gradients = jax.jit(self._over_devices(self._gradients, (P(), P(AXIS)), specs))

    def init(self, part: Any) -> Any:
        made = self._over_devices(
            lambda part: zero.init_shards(part, self.optimizer, axis=AXIS), P(), self._state(part)
        )
        return jax.jit(made)(part)

    def _gradients(self, params: Any, batch: Any) -> tuple[Array, Any]:
        local = jax.lax.pcast(params, AXIS, to="varying")
        loss, gradients = jax.value_and_grad(loss_fn)(local, batch)
        return jax.lax.pmean(loss, AXIS), mean_shards(gradients, axis=AXIS)

    def _update(self, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        states = self._state(params)
        updated = self._over_devices(
            lambda g, s, p: zero.update_shards(g, p, s, self.optimizer, axis=AXIS),
            (shard_specs(params, **self.shards), states, P()),
            (P(), states),
        )
        return updated(gradients, state, params)

    def _state(self, params: Any) -> Any:
        return shard_specs(jax.eval_shape(self.optimizer.init, params), **self.shards)

    def _over_devices(self, function: Callable, takes: Any, gives: Any) -> Callable:
        return jax.shard_map(function, mesh=self.mesh, in_specs=takes, out_specs=gives)


def store_of(kind: str, folder: Path) -> HostStore | DiskStore:
    return HostStore() if kind == "host" else DiskStore(folder)


def on_one_device(optimizer: optax.GradientTransformation) -> tuple[list[float], Any, Any]:
    @jax.jit
    def step(params: Any, state: Any) -> tuple[Array, Any, Any]:
        loss, gradients = jax.value_and_grad(loss_fn)(params, BATCH)
        updates, state = optimizer.update(gradients, state, params)
        return loss, optax.apply_updates(params, updates), state

    params, losses = jax.tree.map(jnp.asarray, PARAMS), []
    state = optimizer.init(params)
    for _ in range(STEPS):
        loss, params, state = step(params, state)
        losses.append(float(loss))
    return losses, params, state


def unpadded(leaf: Array, like: Array) -> np.ndarray:
    return np.asarray(leaf)[tuple(slice(size) for size in like.shape)]


@pytest.mark.parametrize(
    ("mesh", "optimizer", "kind"),
    [
        ("dp=4", "adamw", "host"),
        ("dp=3,tp=2", "adamw", "disk"),
        ("dp=3,tp=2", "sgd", "host"),
        ("dp=4", "lion", "disk"),
        ("dp=3,tp=2", "master", "host"),
    ],
)
def test_training_is_that_of_one_device(
    mesh: str, optimizer: str, kind: str, tmp_path: Path
) -> None:
    losses, expected, expected_state = on_one_device(OPTIMIZERS[optimizer])
    training = Training(OPTIMIZERS[optimizer], make_mesh(mesh))
    state = OffloadedState(store_of(kind, tmp_path), training.init, training.params)
    params, got = training.params, []
    for _ in range(STEPS):
        loss, gradients = training.gradients(params, BATCH)
        params, _ = state.update(training.update, gradients, params)
        got.append(float(loss))
    assert got == pytest.approx(losses, rel=1e-5)
    read = state.load()
    assert jax.tree.structure(read) == jax.tree.structure(expected_state)
    assert {leaf.sharding.memory_kind for leaf in jax.tree.leaves(read)} == {"pinned_host"}
    pairs = zip(
        jax.tree.leaves((params, read)), jax.tree.leaves((expected, expected_state)), strict=True
    )
    for leaf, like in pairs:
        np.testing.assert_allclose(unpadded(leaf, like), like, rtol=2e-5, atol=1e-6)


def test_what_was_read_can_be_stored_again(tmp_path: Path) -> None:
    """As from a checkpoint: the same steps from there, whatever was stored in between."""
    training = Training(OPTIMIZERS["adamw"], make_mesh("dp=4"))
    state = OffloadedState(DiskStore(tmp_path), training.init, training.params)
    saved = [jax.tree.map(np.asarray, state.load())]
    for _ in range(2):
        params = jax.tree.map(jnp.copy, training.params)
        _, gradients = training.gradients(params, BATCH)
        updated, _ = state.update(training.update, gradients, params)
        saved.append(jax.tree.map(np.asarray, (updated, state.load())))
        state.save(saved[0])
    first, second = (jax.tree.leaves(one) for one in saved[1:])
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


LEAVES, SIZE, DEVICES = 4, 4096, 2
LEAF_STATE_BYTES = 2 * 4 * SIZE // DEVICES + 4  # two moments and the count, on one device
BUDGET_BYTES = 2 * LEAF_STATE_BYTES


@pytest.mark.parametrize("kind", ["host", "disk"])
def test_a_state_over_the_budget_visits_one_leaf_at_a_time(kind: str, tmp_path: Path) -> None:
    """Everything is split over dp, as in stage 3, and the devices are asked what they hold."""
    optimizer = optax.adamw(0.1)
    sharding = NamedSharding(make_mesh(f"dp={DEVICES}"), P("dp"))
    params = {f"w{i}": jax.device_put(random(SIZE + i)[:SIZE], sharding) for i in range(LEAVES)}
    gradients = jax.tree.map(jnp.sin, params)
    before, held = jax.live_arrays(), []

    def weigh(*known: Any) -> None:
        """Records what is on device 0 and was not there before, except for these arrays."""
        seen = {id(leaf) for leaf in jax.tree.leaves((before, known))}
        new = [one for one in jax.live_arrays() if id(one) not in seen]
        on_device = [one for one in new if one.sharding.memory_kind == "device"]
        shapes = [one.sharding.shard_shape(one.shape) for one in on_device]
        held.append(4 * sum(math.prod(shape) for shape in shapes))

    def init(part: Any) -> Any:
        state_shardings = shardings_of(optimizer, part, sharding)
        state = jax.jit(optimizer.init, out_shardings=state_shardings)(part)
        weigh()
        return state

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    done = []

    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        weigh(done)
        params, state = step(gradients, state, params)
        done.append(params)
        weigh(done)
        return params, state

    state = OffloadedState(store_of(kind, tmp_path), init, params)
    _, moved = state.update(update, gradients, params)
    assert held == [LEAF_STATE_BYTES] * 3 * LEAVES
    assert moved == (LEAVES * LEAF_STATE_BYTES, LEAVES * LEAF_STATE_BYTES, LEAF_STATE_BYTES)
    assert LEAF_STATE_BYTES < BUDGET_BYTES < moved.to_device_bytes


def shardings_of(
    optimizer: optax.GradientTransformation, part: Any, sharding: NamedSharding
) -> Any:
    """The sharding of the parameters for their moments; the count is replicated."""
    replicated = NamedSharding(sharding.mesh, P())
    like = jax.eval_shape(optimizer.init, part)
    return jax.tree.map(lambda leaf: sharding if leaf.ndim else replicated, like)


def test_a_first_state_on_too_few_devices_is_refused() -> None:
    """`zeros_like` in a jit without out_shardings: one device has all, and the others wait."""
    params = jax.device_put({"w": random(8)}, NamedSharding(make_mesh("dp=4"), P("dp")))
    line = r"a leaf of shape \(\) on 1 devices; the parameters are on 4; give out_shardings"
    with pytest.raises(ValueError, match=line):
        OffloadedState(HostStore(), jax.jit(optax.adamw(0.1).init), params)


def test_a_device_without_such_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "HOST", "far_away")
    with pytest.raises(ValueError, match=r"addresses memory of kinds .'device', .*needs far_away"):
        HostStore().put("0.0", jnp.ones(3))


def test_host_memory_of_another_run_is_not_there() -> None:
    params = jax.device_put({"w": random(8)}, NamedSharding(make_mesh("dp=1"), P()))
    with pytest.raises(ValueError, match=r"leaf 0.0 is not in host memory, which ends with its"):
        OffloadedState(HostStore(), jax.jit(optax.sgd(0.1, 0.9).init), params, resume=True)


@pytest.mark.parametrize("kind", ["host", "disk"])
def test_after_half_an_update_the_state_is_refused(kind: str, tmp_path: Path) -> None:
    """Somebody interrupts the update of the second leaf; a checkpoint must not save that."""
    mesh = make_mesh("dp=1")
    params = jax.device_put({"a": random(8), "b": random(4)}, NamedSharding(mesh, P()))
    state = OffloadedState(
        store_of(kind, tmp_path), lambda part: (jax.tree.map(jnp.copy, part),), params
    )
    first = state.load()

    def update(gradients: Any, old: Any, part: Any) -> tuple[Any, Any]:
        if "b" in str(jax.tree_util.tree_flatten_with_path(part)):
            raise KeyboardInterrupt
        return part, (gradients,)

    with pytest.raises(KeyboardInterrupt):
        state.update(update, params, params)
    for use in (state.load, lambda: state.update(update, params, params)):
        with pytest.raises(ValueError, match="an update ended midway"):
            use()
    state.save(first)
    np.testing.assert_array_equal(state.load()[0]["a"], params["a"])
