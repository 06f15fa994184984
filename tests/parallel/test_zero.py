"""Every stage of ZeRO trains as one device does, and sends and holds what its docstrings say."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.collectives.leaves import leaf_layouts, own, publish, specs_of
from jaxpar.mesh import make_mesh
from jaxpar.parallel import zero
from jaxpar.parallel.precision import master_weights
from tests.arrays import random
from tests.parallel.calls import Call, assert_docstring_holds

P = jax.P
MESHES = ("dp=4", "dp=3,tp=2")
STEPS, M, ROWS = 20, 2, 24
ADAM = optax.adamw(0.02, weight_decay=0.1)
MOMENTUM = optax.sgd(0.1, momentum=0.9)
# Every step exceeds this norm.
CLIPPED = optax.chain(optax.clip_by_global_norm(0.1), ADAM)
CLIPPED_SHARDS = optax.chain(zero.clip_shards(0.1, axis="dp"), ADAM)


# A leaf that 3 and 4 divide, one that 4 divides, and two that nothing divides.
PARAMS = {"w": random(3, 8), "out": [random(8, 1), random(1)], "scale": np.float32(0.5)}
BATCHES = (random(STEPS, ROWS, 3), random(STEPS, ROWS, 1))


def loss_fn(params: dict, batch: tuple) -> jax.Array:
    x, y = batch
    out, bias = params["out"]
    return jnp.mean((jnp.tanh(x @ params["w"]) @ out * params["scale"] + bias[None] - y) ** 2)


@cache
def on_one_device() -> tuple[np.ndarray, Any]:
    """Losses of all steps, and the parameters after them."""

    def step(carry: Any, batch: Any) -> Any:
        params, state = carry
        loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
        updates, state = CLIPPED.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), loss

    params = jax.tree.map(jnp.asarray, PARAMS)
    (params, _), losses = jax.lax.scan(step, (params, CLIPPED.init(params)), BATCHES)
    return losses, params


def stage_1(params: Any, state: Any, batch: Any) -> Any:
    local = jax.lax.pcast(params, "dp", to="varying")
    loss, gradients = jax.value_and_grad(loss_fn)(local, batch)
    params, state = zero.zero1_update(gradients, params, state, CLIPPED_SHARDS, axis="dp")
    return params, state, jax.lax.pmean(loss, "dp")


def stage_2(params: Any, state: Any, batch: Any) -> Any:
    parts = jax.tree.map(lambda leaf: leaf.reshape(M, -1, *leaf.shape[1:]), batch)
    gradients = zero.zero2_accumulate(loss_fn, params, parts, axis="dp")
    loss = jax.lax.pmean(loss_fn(params, batch), "dp")
    layouts = zero.shard_layouts(params, axis="dp", stage=2)
    params, state = zero.update_owned(gradients, params, state, CLIPPED_SHARDS, layouts)
    return params, state, loss


def stage_3(params: Any, state: Any, batch: Any) -> Any:
    loss, gradients = zero.zero3_gradients(loss_fn, params, batch, PARAMS, axis="dp")
    layouts = zero.shard_layouts(PARAMS, axis="dp", stage=3)
    params, state = zero.update_owned(gradients, params, state, CLIPPED_SHARDS, layouts)
    return params, state, loss


@pytest.mark.parametrize("sizes", MESHES)
@pytest.mark.parametrize("stage", [stage_1, stage_2, stage_3])
def test_it_trains_as_one_device_does(stage: Callable, sizes: str) -> None:
    def steps(batches: Any) -> Any:
        whole = jax.tree.map(jnp.asarray, PARAMS)
        layouts = zero.shard_layouts(whole, axis="dp", stage=1)
        params = own(whole, layouts) if stage is stage_3 else whole
        carry = params, zero.init_shards(whole, CLIPPED_SHARDS, axis="dp")

        def step(carry: Any, batch: Any) -> Any:
            *carry, loss = stage(*carry, batch)
            return tuple(carry), loss

        (params, _), losses = jax.lax.scan(step, carry, batches)
        if stage is stage_3:
            params = publish(params, layouts)
        return losses, params

    program = jax.shard_map(
        steps, mesh=make_mesh(sizes), in_specs=P(None, "dp"), out_specs=(P(), P())
    )
    for one, other in zip(
        jax.tree.leaves(jax.jit(program)(BATCHES)), jax.tree.leaves(on_one_device()), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("sizes", MESHES)
def test_master_weights_are_shared_and_bfloat16_is_gathered(sizes: str) -> None:
    """As on one device: the gradients are whole numbers, and their mean is exact."""
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), PARAMS)
    slopes = jax.tree.map(lambda leaf: jnp.sign(leaf) + 2, low)
    optimizer = master_weights(ADAM)

    def on_one_device() -> Any:
        params, state = low, optimizer.init(jax.tree.map(jnp.asarray, PARAMS))
        for _ in range(3):
            updates, state = optimizer.update(slopes, state, params)
            params = optax.apply_updates(params, updates)
        return params, state.master

    def sharded() -> Any:
        masters = jax.tree.map(jnp.asarray, PARAMS)
        params, state = low, zero.init_shards(masters, optimizer, axis="dp")
        for _ in range(3):
            local = jax.lax.pcast(slopes, "dp", to="varying")
            params, state = zero.zero1_update(local, params, state, optimizer, axis="dp")
        layouts = zero.shard_layouts(masters, axis="dp", stage=1)
        return params, publish(state.master, layouts)

    program = jax.shard_map(sharded, mesh=make_mesh(sizes), in_specs=(), out_specs=P())
    got, expected = jax.jit(program)(), jax.jit(on_one_device)()
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("sizes", MESHES)
def test_a_norm_counts_each_element_once(sizes: str) -> None:
    gradients = {**PARAMS, "low": jnp.arange(8, dtype=jnp.bfloat16)}

    def norm(gradients: Any) -> jax.Array:
        local = jax.lax.pcast(gradients, "dp", to="varying")
        layouts = zero.shard_layouts(gradients, axis="dp", stage=1)
        return zero.global_norm_of_shards(zero.mean_shards(local, layouts, axis="dp"), axis="dp")

    program = jax.shard_map(norm, mesh=make_mesh(sizes), in_specs=P(), out_specs=P())
    got = jax.jit(program)(gradients)
    np.testing.assert_allclose(got, optax.tree.norm(gradients), rtol=1e-6)
    assert got.dtype == jnp.float32


def test_gradients_below_the_norm_are_left_as_they_are() -> None:
    mesh = make_mesh("dp=4")
    clip = zero.clip_shards(1.0, axis="dp")

    def clipped(gradients: Any) -> Any:
        return clip.update(gradients, clip.init(gradients))[0]

    program = jax.jit(jax.shard_map(clipped, mesh=mesh, in_specs=P("dp"), out_specs=P("dp")))
    for values in (np.full(16, 0.2, np.float32), np.zeros(16, np.float32)):
        np.testing.assert_array_equal(program(values), values)


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_the_state_of_a_leaf_is_split_as_the_leaf_is_owned(stage: int) -> None:
    """For any elementwise optimizer; the number of steps is replicated."""
    sizes = {"dp": 4, "tp": 2}
    used = {"w": P("tp"), "out": [P(), P()]}
    params = {"w": random(8, 5), "out": [random(3, 4), random(5)]}
    layouts = leaf_layouts(params, used, sizes=sizes, axes=("dp",), stage=stage)
    owned = specs_of(layouts, "owned")
    assert owned == ({"w": P(("tp", "dp")), "out": [P(None, "dp"), P()]} if stage else used)
    (adam, *_) = zero.state_specs(ADAM, layouts)
    assert (adam.count, adam.mu, adam.nu) == (P(), owned, owned)
    mixed = zero.state_specs(master_weights(ADAM), layouts)
    assert mixed.master == owned
    whole = master_weights(ADAM).init(jax.tree.map(jnp.asarray, params))
    assert jax.tree.structure(mixed) == jax.tree.structure(whole)


EVEN = {"w": random(8, 5), "out": {"w": random(4, 8)}}
SIZE = sum(leaf.size for leaf in jax.tree.leaves(EVEN))
LAYOUTS = leaf_layouts(EVEN, sizes={"dp": 4}, axes=("dp",), stage=1)
SPECS = specs_of(LAYOUTS, "owned")
EACH = jax.tree.map(lambda leaf: np.stack([leaf] * 4), EVEN)
STATE = jax.tree.map(jnp.asarray, MOMENTUM.init(EVEN))
WHOLE = P(), zero.state_specs(MOMENTUM, LAYOUTS)
MICROBATCHES = random(M, ROWS // M, 4)


def matrices(params: dict, batch: jax.Array) -> jax.Array:
    return jnp.mean((batch @ params["out"]["w"] @ params["w"]) ** 2)


def first_of(each: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], each)


def zero1_update(grads: Any, params: Any, state: Any) -> Any:
    return zero.zero1_update(first_of(grads), params, state, MOMENTUM, axis="dp")


CALLS = [
    Call(
        zero.init_shards,
        lambda params: zero.init_shards(params, MOMENTUM, axis="dp"),
        (EVEN,), (P(),), WHOLE[1],
    ),
    Call(zero.zero1_update, zero1_update, (EACH, EVEN, STATE), (P("dp"), *WHOLE), WHOLE, 1),
    Call(
        zero.update_owned,
        lambda grads, params, state: zero.update_owned(grads, params, state, MOMENTUM, LAYOUTS),
        (EVEN, EVEN, STATE), (SPECS, *WHOLE), WHOLE, 1, names={"state": SIZE // 4},
    ),
    Call(
        zero.mean_shards,
        lambda grads: zero.mean_shards(first_of(grads), LAYOUTS, axis="dp"),
        (EACH,), (P("dp"),), SPECS,
    ),
    Call(
        zero.zero2_accumulate,
        lambda params, batch: zero.zero2_accumulate(matrices, params, batch, axis="dp"),
        (EVEN, MICROBATCHES), (P(), P(None, "dp")), SPECS, 1,
    ),
    Call(
        zero.zero3_gradients,
        lambda shards, batch: zero.zero3_gradients(matrices, shards, batch, EVEN, axis="dp"),
        (EVEN, MICROBATCHES[0]), (SPECS, P("dp")), (P(), SPECS), 1,
    ),
    Call(
        zero.global_norm_of_shards,
        lambda shards: zero.global_norm_of_shards(shards, axis="dp"),
        (EVEN,), (SPECS,), P(),
    ),
    Call(
        zero.clip_shards,
        lambda shards: zero.clip_shards(1.0, axis="dp").update(shards, optax.EmptyState())[0],
        (EVEN,), (SPECS,), SPECS,
    ),
]  # fmt: skip
NAMES = {"m": M, "params": SIZE, "state": SIZE, "leaves": 2}


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(
        replace(call, names={**NAMES, **call.names}), "dp=4,tp=2", axis="dp", layouts="dp"
    )
