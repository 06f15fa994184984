"""A master or a server: its step equals that of one device, and all bytes go through it.

That `parameter_server_step` equals one device is in its contract.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpar.inspector.stablehlo import read_module
from jaxpar.parallel import server
from tests.arrays import random
from tests.comm_lines import comm, evaluate, memory
from tests.parallel.calls import Call, assert_close, assert_docstring_holds

P = jax.P
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


def first(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def stacked(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], tree)


def single_master(n: int) -> Call:
    """Of params and chunks [n, b, ...] that the master has; the other devices have NaN."""

    def per_device(params: Any, batch: Any) -> Any:
        given = loss_fn, first(params), first(batch)
        return stacked(server.single_master_gradients(*given, axis="dp", master=ROOT))

    chunks = jax.tree.map(lambda leaf: leaf.reshape(n, -1, *leaf.shape[1:]), BATCH)
    args = jax.tree.map(lambda leaf: on_root(leaf, n, np.nan), (PARAMS, chunks))
    specs = P("dp"), P("dp")
    return Call(server.single_master_gradients, per_device, args, specs, P("dp"), 1)


def on_root(leaf: Any, n: int, elsewhere: float) -> np.ndarray:
    everywhere = np.full((n, *leaf.shape), elsewhere, leaf.dtype)
    everywhere[ROOT] = leaf
    return everywhere


def server_step(params: Any, batch: Any) -> Any:
    given = loss_fn, params, batch, update_fn
    return stacked(server.parameter_server_step(*given, axis="dp", server=ROOT))


SERVER_STEP = Call(
    server.parameter_server_step, server_step, (PARAMS, BATCH), (P(), P("dp")), P("dp"), 1
)


@pytest.mark.parametrize(("sizes", "n"), [("dp=4", 4), ("dp=3,tp=2", 3)])
def test_the_master_has_loss_and_gradient_of_the_whole_batch(sizes: str, n: int) -> None:
    call = single_master(n)
    got = call.program(sizes, differentiate=False)(*call.args)
    expected = jax.value_and_grad(loss_fn)(PARAMS, BATCH)
    assert_close(got, jax.tree.map(lambda leaf: on_root(leaf, n, 0), expected))


@pytest.mark.parametrize("call", [single_master(4), SERVER_STEP], ids=str)
def test_they_send_and_hold_what_they_say(call: Call) -> None:
    assert_docstring_holds(call, "dp=4,tp=2", axis="dp")
    program = call.program("dp=4,tp=2", differentiate=False).lower(*call.args)
    collectives = read_module(program.compiler_ir("stablehlo"))
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


def test_a_stale_server_sends_nothing_and_holds_what_it_says() -> None:
    params = jax.tree.map(jnp.asarray, PARAMS)
    batches = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), BATCH)
    run = partial(server.stale_server, loss_fn, update_fn=lambda p, _: p, staleness=2)
    held = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(run, params, batches)))
    assert held == evaluate(memory(server.stale_server), {"params": 20, "m": 3})
    assert comm(server.stale_server, "forward") == comm(server.stale_server, "backward") == ()


@pytest.mark.parametrize("call", [single_master(4), SERVER_STEP], ids=str)
def test_a_device_that_is_not_there_is_refused(call: Call) -> None:
    with pytest.raises(ValueError, match=f"{call}: root {ROOT} on mesh axis dp"):
        jax.eval_shape(call.program("dp=2", differentiate=False), *call.args)


def test_a_batch_without_a_chunk_for_each_device_is_refused() -> None:
    call = single_master(3)
    params, _ = call.args
    batch = random(3, 4, 4, 3), random(3, 4, 4)
    with pytest.raises(ValueError, match=r"in batch: x has shape \(4, 4, 3\); dim 0 must be"):
        jax.eval_shape(call.program("dp=3", differentiate=False), params, batch)


def test_a_negative_staleness_is_refused() -> None:
    with pytest.raises(ValueError, match="stale_server: staleness -1"):
        server.stale_server(loss_fn, jnp.ones(2), jnp.ones(3), update_fn, staleness=-1)
