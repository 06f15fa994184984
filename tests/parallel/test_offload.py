"""Offload: an update is the same as without it, and a device holds one leaf's state at a time."""

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
from jax.sharding import NamedSharding

from jaxpar.mesh import make_mesh
from jaxpar.parallel import offload
from jaxpar.parallel.disk import DiskStore
from jaxpar.parallel.offload import HostStore, OffloadedState
from jaxpar.parallel.precision import master_weights
from tests.arrays import random

P = jax.P
WHOLE_DECAY = optax.adamw(0.1, weight_decay=0.1, mask={"w": True, "b": False, "out": True})
OPTIMIZERS = {
    "adamw": WHOLE_DECAY,
    "sgd": optax.sgd(optax.linear_schedule(0.1, 0.0, 10), momentum=0.9),
    "lion": optax.lion(0.01),
    "master": master_weights(WHOLE_DECAY),
}
PARAMS = {"w": random(6, 8), "b": random(8), "out": random(8)}


def store_of(kind: str, folder: Path) -> HostStore | DiskStore:
    return HostStore() if kind == "host" else DiskStore(folder)


def over_devices(sizes: str) -> NamedSharding:
    return NamedSharding(make_mesh(sizes), P("dp"))


def init_of(optimizer: optax.GradientTransformation, sharding: NamedSharding) -> Callable:
    """Gives moments the sharding of the parameters; counts are replicated."""
    replicated = NamedSharding(sharding.mesh, P())

    def init(part: Any) -> Any:
        like = jax.eval_shape(optimizer.init, part)
        shardings = jax.tree.map(lambda leaf: sharding if leaf.ndim else replicated, like)
        return jax.jit(optimizer.init, out_shardings=shardings)(part)

    return init


def update_of(optimizer: optax.GradientTransformation) -> Callable:
    @partial(jax.jit, donate_argnums=(1, 2))
    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return update


@pytest.mark.parametrize(
    ("sizes", "optimizer", "kind"),
    [
        ("dp=2", "adamw", "host"),
        ("dp=2,tp=3", "adamw", "disk"),
        ("dp=2,tp=3", "sgd", "host"),
        ("dp=2", "lion", "disk"),
        ("dp=2,tp=3", "master", "host"),
    ],
)
def test_leaf_by_leaf_is_as_all_at_once(
    sizes: str, optimizer: str, kind: str, tmp_path: Path
) -> None:
    sharding, chosen = over_devices(sizes), OPTIMIZERS[optimizer]
    update = update_of(chosen)
    params, whole = (jax.device_put(PARAMS, sharding) for _ in range(2))
    state = OffloadedState(store_of(kind, tmp_path), init_of(chosen, sharding), params)
    whole_state = init_of(chosen, sharding)(whole)
    for _ in range(3):
        params, _ = state.update(update, jax.tree.map(jnp.sin, params), params)
        whole, whole_state = update(jax.tree.map(jnp.sin, whole), whole_state, whole)
    read = state.load()
    assert jax.tree.structure(read) == jax.tree.structure(whole_state)
    assert {leaf.sharding.memory_kind for leaf in jax.tree.leaves(read)} == {"pinned_host"}
    check = partial(np.testing.assert_allclose, rtol=1e-6)
    jax.tree.map(check, (params, read), (whole, whole_state))


def test_what_was_read_can_be_stored_again(tmp_path: Path) -> None:
    """As from a checkpoint: the steps that follow are the same, whatever was stored in between."""
    sharding, optimizer = over_devices("dp=2"), OPTIMIZERS["adamw"]
    params = jax.device_put(PARAMS, sharding)
    state = OffloadedState(DiskStore(tmp_path), init_of(optimizer, sharding), params)
    saved = [jax.tree.map(np.asarray, state.load())]
    for _ in range(2):
        updated, _ = state.update(update_of(optimizer), params, jax.tree.map(jnp.copy, params))
        saved.append(jax.tree.map(np.asarray, (updated, state.load())))
        state.save(saved[0])
    jax.tree.map(np.testing.assert_array_equal, saved[1], saved[2])


LEAVES, SIZE, DEVICES = 4, 4096, 2
LEAF_STATE_BYTES = 2 * 4 * SIZE // DEVICES + 4  # two moments and the count, on one device
BUDGET_BYTES = 2 * LEAF_STATE_BYTES


@pytest.mark.parametrize("kind", ["host", "disk"])
def test_a_state_over_the_budget_visits_one_leaf_at_a_time(kind: str, tmp_path: Path) -> None:
    """Everything is split over dp, as in stage 3, and the devices are asked what they hold."""
    optimizer, sharding = optax.adamw(0.1), over_devices(f"dp={DEVICES}")
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
        state = init_of(optimizer, sharding)(part)
        weigh()
        return state

    step = update_of(optimizer)
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


def test_a_first_state_on_too_few_devices_is_refused() -> None:
    """`zeros_like` in a jit without out_shardings puts the whole state on one device."""
    params = jax.device_put({"w": random(8)}, over_devices("dp=4"))
    line = r"a leaf of shape \(\) on 1 devices; the parameters are on 4; give out_shardings"
    with pytest.raises(ValueError, match=line):
        OffloadedState(HostStore(), jax.jit(optax.adamw(0.1).init), params)


def test_a_device_without_such_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "HOST", "far_away")
    with pytest.raises(ValueError, match=r"addresses memory of kinds .'device', .*needs far_away"):
        HostStore().put("0.0", jnp.ones(3))


def test_host_memory_of_another_run_is_not_there() -> None:
    params = jax.device_put({"w": random(8)}, over_devices("dp=1"))
    with pytest.raises(ValueError, match=r"leaf 0.0 is not in host memory, which ends with its"):
        OffloadedState(HostStore(), jax.jit(optax.sgd(0.1, 0.9).init), params, resume=True)


@pytest.mark.parametrize("kind", ["host", "disk"])
def test_after_half_an_update_the_state_is_refused(kind: str, tmp_path: Path) -> None:
    """Somebody interrupts the update of the second leaf; a checkpoint must not save that."""
    params = jax.device_put({"a": random(8), "b": random(4)}, over_devices("dp=1"))
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
