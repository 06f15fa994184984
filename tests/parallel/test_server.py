"""A master or a server: the step equals that of one device, and all bytes go through it."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh
from jaxpar.parallel import server
from tests.arrays import random
from tests.comm_lines import check_lines, comm, evaluate, measured, memory

P = jax.P
MESHES = ("dp=4", "dp=3,tp=2")
ROOT = 2
ROWS = 12


def loss_fn(params: dict, batch: tuple) -> jax.Array:
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["w"]) @ params["out"] - y) ** 2)


def update_fn(params: dict, gradients: dict) -> dict:
    rate = jnp.where(lax.axis_index("dp") == ROOT, 0.5, jnp.nan)
    return jax.tree.map(lambda p, g: p - rate * g, params, gradients)


PARAMS = {"w": random(3, 5), "out": random(5)}
BATCH = (random(ROWS, 3), random(ROWS))
LOSS, GRADIENTS = jax.value_and_grad(loss_fn)(PARAMS, BATCH)


def single_master(params: dict, batch: tuple) -> Any:
    return server.single_master_gradients(loss_fn, params, batch, axis="dp", master=ROOT)


def one_step(params: dict, batch: tuple) -> Any:
    return server.parameter_server_step(loss_fn, params, batch, update_fn, axis="dp", server=ROOT)


def stacked(function: Callable, sizes: str, differentiate: bool = False) -> Callable:
    """Stacks every device's result along a new dim; those of single_master take [n, ...] too."""
    mesh, master = make_mesh(sizes), function is single_master

    def on_one_device(params: dict, batch: tuple) -> Any:
        if master:
            params, batch = jax.tree.map(lambda leaf: leaf[0], (params, batch))
        result, pull = jax.vjp(lambda params: function(params, batch), params)
        gradients = pull(result) if differentiate else ()
        return jax.tree.map(lambda leaf: leaf[None], result), gradients

    specs = (P("dp") if master else P(), P("dp"))
    grad_specs = P("dp") if master else P()
    program = jax.shard_map(
        on_one_device, mesh=mesh, in_specs=specs, out_specs=(P("dp"), grad_specs)
    )
    return jax.jit(program)


def arguments(function: Callable, sizes: str) -> tuple:
    """For single_master: chunks [n, b, ...] and params on the master, NaN elsewhere."""
    if function is not single_master:
        return PARAMS, BATCH
    n = make_mesh(sizes).shape["dp"]
    chunks = jax.tree.map(lambda leaf: leaf.reshape(n, -1, *leaf.shape[1:]), BATCH)

    def on_root(leaf: np.ndarray) -> np.ndarray:
        everywhere = np.full((n, *leaf.shape), np.nan, leaf.dtype)
        everywhere[ROOT] = leaf
        return everywhere

    return jax.tree.map(on_root, (PARAMS, chunks))


def assert_close(got: Any, expected: Any) -> None:
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", MESHES)
def test_the_master_has_loss_and_gradient_of_the_whole_batch(sizes: str) -> None:
    got, _ = stacked(single_master, sizes)(*arguments(single_master, sizes))
    assert_close(jax.tree.map(lambda leaf: leaf[ROOT], got), (LOSS, GRADIENTS))
    others = jax.tree.map(lambda leaf: np.delete(leaf, ROOT, axis=0), got)
    assert not any(leaf.any() for leaf in jax.tree.leaves(others))


@pytest.mark.parametrize("sizes", MESHES)
def test_every_device_has_what_the_server_makes_of_the_mean(sizes: str) -> None:
    got, _ = stacked(one_step, sizes)(PARAMS, BATCH)
    expected = jax.tree.map(lambda p, g: p - 0.5 * g, PARAMS, GRADIENTS)
    assert_close(got, jax.tree.map(lambda leaf: np.stack([leaf] * len(got["out"])), expected))


@pytest.mark.parametrize("function", [single_master, one_step])
def test_they_send_and_hold_what_they_say(function: Callable) -> None:
    sizes, n = "dp=4,tp=2", 4
    documented = {
        single_master: server.single_master_gradients,
        one_step: server.parameter_server_step,
    }[function]
    names = {"n": n, "params": 20, "batch": ROWS * 4 if function is single_master else ROWS}
    forward, both = (
        stacked(function, sizes, differentiate).lower(*arguments(function, sizes))
        for differentiate in (False, True)
    )
    held = sum(leaf.size for leaf in jax.tree.leaves(forward.out_info)) / n
    sent = measured(forward), measured(both)
    check_lines(documented, *sent, held, axes={"axis": "dp"}, names=names)
    collectives = read_module(forward.compiler_ir("stablehlo"))
    assert all(ROOT in pair for collective in collectives for pair in collective.pairs)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_stale_server_updates_by_old_gradients(staleness: int) -> None:
    """The loss is (p - b)**2 / 2, and its gradient p - b."""
    batches, rate = random(6), 0.25
    params, losses = server.stale_server(
        lambda p, b: (p - b) ** 2 / 2,
        jnp.float32(1.5),
        jnp.asarray(batches),
        lambda p, g: p - rate * g,
        staleness=staleness,
    )
    history, expected = [1.5], []
    for t, b in enumerate(batches):
        old = history[max(t - staleness, 0)]
        expected.append((old - b) ** 2 / 2)
        history.append(history[-1] - rate * (old - b))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(params, history[-1], rtol=1e-5)


def test_a_stale_server_holds_params_and_losses() -> None:
    batches = tuple(jnp.stack([leaf] * 3) for leaf in BATCH)
    results = jax.eval_shape(
        lambda params, batches: server.stale_server(
            loss_fn, params, batches, lambda p, g: g, staleness=2
        ),
        PARAMS, batches,
    )  # fmt: skip
    held = sum(leaf.size for leaf in jax.tree.leaves(results))
    assert held == evaluate(memory(server.stale_server), {"params": 20, "m": 3})
    assert comm(server.stale_server, "forward") == comm(server.stale_server, "backward") == ()


@pytest.mark.parametrize("name", ["single_master_gradients", "parameter_server_step"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    function, mesh = getattr(server, name), make_mesh("dp=2")
    more = {"update_fn": update_fn} if name == "parameter_server_step" else {}
    root = list(inspect.signature(function).parameters)[-1]

    def call(batch: tuple) -> Any:
        return function(
            loss_fn, jax.tree.map(jnp.asarray, PARAMS), batch, **more, axis="dp", **{root: 2}
        )

    program = jax.shard_map(call, mesh=mesh, in_specs=P("dp"), out_specs=P())
    with pytest.raises(ValueError, match=f"{name}: root 2 on mesh axis dp"):
        jax.eval_shape(program, BATCH)


def test_a_batch_without_a_chunk_for_each_device_is_refused() -> None:
    program = jax.shard_map(
        single_master, mesh=make_mesh("dp=4"), in_specs=(P(), P("dp")), out_specs=P()
    )
    with pytest.raises(ValueError, match=r"in batch: x has shape \(3, 3\); dim 0 must be"):
        jax.eval_shape(program, jax.tree.map(jnp.asarray, PARAMS), BATCH)


def test_a_negative_staleness_is_refused() -> None:
    with pytest.raises(ValueError, match="stale_server: staleness -1"):
        server.stale_server(loss_fn, jnp.ones(2), jnp.ones(3), update_fn, staleness=-1)
