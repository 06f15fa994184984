"""GPipe by scan equals one device, sends and holds what it says, and computes in every tick.

That `pipeline_forward` equals one device is in its contract.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxpar.inspector import inspect
from jaxpar.parallel import gpipe
from tests.arrays import random
from tests.parallel.calls import Call, assert_docstring_holds, assert_equal_one_device

P = jax.P
D = 6


def stage_fn(params: Any, x: jax.Array) -> jax.Array:
    return x + jnp.sin(x @ params["matrix"] + jnp.broadcast_to(params["bias"], x.shape))


def one_device(params: Any, x: Any) -> jax.Array:
    return lax.scan(lambda x, layer: (stage_fn(layer, x), None), x, params)[0]


def squares(y: jax.Array, target: Any) -> jax.Array:
    return ((y - target) ** 2).mean()


def layers(n: int) -> dict[str, Any]:
    return {"matrix": random(n, D, D), "bias": random(n, D)}


def first(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def of_stages(function: Callable, n: int, m: int) -> Call:
    """A forward pass whose input differs on each of n devices, and the result as well."""

    def per_device(params: Any, x: Any) -> jax.Array:
        return function(stage_fn, first(params), first(x), axis="pp")[None]

    args = layers(n), random(n, m, 4, D)
    return Call(function, per_device, args, (P("pp"), P("pp")), P("pp"))


def of_loss(n: int, m: int) -> Call:
    def per_device(params: Any, batch: Any) -> jax.Array:
        return gpipe.gpipe_loss(stage_fn, squares, axis="pp")(first(params), batch)

    args = layers(n), (random(m, 4, D), random(m, 4, D) + 1)
    names = {"x": 4 * D, "m": m}
    return Call(gpipe.gpipe_loss, per_device, args, (P("pp"), P()), P(), 1, names=names)


@pytest.mark.parametrize(("n", "m"), [(4, 5), (3, 2)])
def test_the_naive_pass_equals_one_device(n: int, m: int) -> None:
    def on_the_last_device(params: Any, x: Any) -> jax.Array:
        return jnp.zeros(x.shape).at[-1].set(one_device(params, x[0]))

    assert_equal_one_device(of_stages(gpipe.naive_forward, n, m), on_the_last_device, f"pp={n}")


@pytest.mark.parametrize(("n", "m"), [(4, 5), (3, 2)])
def test_the_loss_and_its_gradient_equal_one_device(n: int, m: int) -> None:
    def loss(params: Any, batch: Any) -> jax.Array:
        return squares(one_device(params, batch[0]), batch[1])

    assert_equal_one_device(of_loss(n, m), loss, f"pp={n}")


SEND_ON = Call(
    gpipe.send_on, partial(gpipe.send_on, axis="pp"), (random(4, D),), (P("pp"),), P("pp")
)
PIPELINE = replace(of_stages(gpipe.pipeline_forward, 4, 5), names={"x": 4 * D, "m": 5})


@pytest.mark.parametrize(
    "call",
    [
        PIPELINE,
        of_stages(gpipe.naive_forward, 4, 5),
        of_loss(4, 5),
        SEND_ON,
    ],
    ids=str,
)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(call, "pp=4", axis="pp")


def test_every_device_computes_in_every_tick_and_keeps_every_microbatch() -> None:
    """The bubble shows as arithmetic, and the residuals grow with the number of microbatches."""
    reports = []
    for m in (4, 8):
        call = of_stages(gpipe.pipeline_forward, 4, m)
        reports.append(inspect(call.program("pp=4", differentiate=True), *call.args))
    assert [r.flops for r in reports] == [3 * (m + 3) * 2 * 4 * D * D for m in (4, 8)]
    few, many = (r.memory.temp_bytes for r in reports)
    assert many - few >= 4 * 2 * 4 * 4 * D  # two arrays of a microbatch more for each
