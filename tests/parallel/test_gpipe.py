"""GPipe by scan equals one device, sends and holds what it says, and computes in every tick."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel import gpipe
from jaxpar.parallel.data import data_parallel_gradients
from tests.arrays import random
from tests.comm_lines import check_lines, measured

P = jax.P
D = 6
SIZES = [("pp=4", 5), ("pp=3,dp=2", 2)]


def stage_fn(params: Any, x: jax.Array) -> jax.Array:
    return x + jnp.sin(x @ params["matrix"] + jnp.broadcast_to(params["bias"], x.shape))


def layers(n: int) -> dict[str, np.ndarray]:
    return {"matrix": random(n, D, D), "bias": random(n, D)}


def one_device(params: Any, x: Any) -> jax.Array:
    return lax.scan(lambda x, layer: (stage_fn(layer, x), None), x, params)[0]


def on_mesh(forward: Callable, sizes: str, *, differentiate: bool = False) -> Callable:
    """A forward pass whose input differs on each device, with the gradient of <y, weights>."""
    mesh = make_mesh(sizes)
    rows = P("pp", None, tuple(mesh.axis_names)[1:])

    def on_shards(params: Any, x: Any, weights: Any) -> Any:
        mine, x, weights = jax.tree.map(lambda leaf: leaf[0], (params, x, weights))
        mine = jax.tree.map(lambda p: lax.pcast(p, tuple(mesh.axis_names)[1:], to="varying"), mine)
        y, pull = jax.vjp(partial(forward, stage_fn, axis="pp"), mine, x)
        if not differentiate:
            return y[None]
        gradients, x = pull(weights)
        gradients = lax.psum(gradients, tuple(mesh.axis_names)[1:])
        return jax.tree.map(lambda leaf: leaf[None], (y, gradients, x))

    gives = (rows, P("pp"), rows) if differentiate else rows
    takes = (P("pp"), rows, rows)
    return jax.jit(jax.shard_map(on_shards, mesh=mesh, in_specs=takes, out_specs=gives))


@pytest.mark.parametrize("forward", [gpipe.pipeline_forward, gpipe.naive_forward])
@pytest.mark.parametrize(("sizes", "m"), SIZES)
def test_it_equals_one_device(forward: Callable, sizes: str, m: int) -> None:
    n = make_mesh(sizes).shape["pp"]
    params, x, weights = layers(n), random(n, m, 4, D), random(n + 1, m, 4, D)[1:]
    y, gradients, dx = on_mesh(forward, sizes, differentiate=True)(params, x, weights)
    expected, pull = jax.vjp(one_device, params, x[0])
    by_params, by_x = pull(jnp.asarray(weights[-1]))
    others = np.zeros((n - 1, m, 4, D))
    right = (
        np.concatenate([others, expected[None]]),
        by_params,
        np.concatenate([by_x[None], others]),
    )
    for one, other in zip(jax.tree.leaves((y, gradients, dx)), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def squares(y: jax.Array, target: Any) -> jax.Array:
    return ((y - target) ** 2).mean()


@pytest.mark.parametrize(("sizes", "m"), SIZES)
def test_the_loss_and_its_gradient_equal_one_device(sizes: str, m: int) -> None:
    mesh = make_mesh(sizes)
    params, batch = layers(mesh.shape["pp"]), (random(m, 4, D), random(m, 4, D) + 1)
    loss, gradients = with_loss(sizes)(params, batch)
    expected, by_one = jax.value_and_grad(
        lambda params: squares(one_device(params, batch[0]), batch[1])
    )(params)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(by_one), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def with_loss(sizes: str, *, differentiate: bool = True) -> Callable:
    mesh = make_mesh(sizes)
    loss = gpipe.gpipe_loss(stage_fn, squares, axis="pp")
    found = jax.value_and_grad(loss) if differentiate else loss
    if "dp" in mesh.shape:
        found = partial(data_parallel_gradients, loss, axis="dp")

    def on_shards(params: Any, batch: Any) -> Any:
        result = found(jax.tree.map(lambda leaf: leaf[0], params), batch)
        if not differentiate:
            return result
        return result[0], jax.tree.map(lambda leaf: leaf[None], result[1])

    rows = P(None, tuple(mesh.axis_names)[1:])
    gives = (P(), P("pp")) if differentiate else P()
    return jax.jit(jax.shard_map(on_shards, mesh=mesh, in_specs=(P("pp"), rows), out_specs=gives))


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (gpipe.pipeline_forward, 4 * D),
        (gpipe.naive_forward, 5 * 4 * D),
        (gpipe.send_on, 5 * 4 * D),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_it_sends_and_holds_what_it_says(function: Callable, x: int) -> None:
    def forward(stage_fn: Callable, params: Any, x: Any, *, axis: str) -> Any:
        return gpipe.send_on(x, axis=axis)

    call = forward if function is gpipe.send_on else function
    given = layers(4), random(4, 5, 4, D), random(4, 5, 4, D)
    both, alone = (on_mesh(call, "pp=4", differentiate=d).lower(*given) for d in (True, False))
    held = math.prod(alone.out_info.shape) / 4
    names = {"x": x, "m": 5, "n": 4}
    sent = measured(alone), measured(both)
    check_lines(function, *sent, held, axes={"axis": "pp"}, names=names)


def test_the_loss_sends_what_it_says() -> None:
    given = layers(4), (random(5, 4, D), random(5, 4, D))
    forward, both = (with_loss("pp=4", differentiate=d).lower(*given) for d in (False, True))
    names = {"x": 4 * D, "m": 5, "n": 4}
    sent = measured(forward), measured(both)
    check_lines(gpipe.gpipe_loss, *sent, 1, axes={"axis": "pp"}, names=names)


def test_every_device_computes_in_every_tick_and_keeps_every_microbatch() -> None:
    """The bubble shows as arithmetic, and the residuals grow with the number of microbatches."""
    reports = []
    for m in (4, 8):
        given = layers(4), random(4, m, 4, D), random(4, m, 4, D)
        program = on_mesh(gpipe.pipeline_forward, "pp=4", differentiate=True)
        reports.append(inspect(program, *given))
    assert [r.flops for r in reports] == [3 * (m + 3) * 2 * 4 * D * D for m in (4, 8)]
    few, many = (r.memory.temp_bytes for r in reports)
    assert many - few >= 4 * 2 * 4 * 4 * D  # two arrays of a microbatch more for each
