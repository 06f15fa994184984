"""A contract with what the first lessons do not need: pytrees, functions, memory, whole results."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import Communication, Contract, Expected, FlopsLimit, Limit, MemoryLimit
from jaxpar.contracts.case import ArraySpec, Case, Function, Sizes


def squared_loss(params: dict, batch: tuple) -> jax.Array:
    """The loss that answers are given."""
    inputs, targets = batch
    return jnp.mean((inputs @ params["w"] + params["b"][None] - targets) ** 2)


def sharded_gradients(loss_fn: Any, params: dict, batch: tuple, *, axis: str) -> tuple:
    """Mean loss, and this device's rows of the mean gradient of w and b."""
    local = jax.tree.map(lambda leaf: lax.pcast(leaf, axis, to="varying"), params)
    loss, gradients = jax.value_and_grad(loss_fn)(local, batch)
    n = lax.axis_size(axis)
    return lax.pmean(loss, axis), jax.tree.map(
        lambda leaf: lax.psum_scatter(leaf, axis, tiled=True) / n, gradients
    )


def _oracle(case: Case, loss_fn: Any, params: dict, batch: tuple) -> list[Expected]:
    del loss_fn
    n = case.sizes[case.kwargs["axis"]]
    loss, gradients = jax.value_and_grad(squared_loss)(params, batch)
    expected = [Expected(jnp.broadcast_to(loss, (n,)))]
    for leaf in jax.tree.leaves(gradients):
        rows = leaf.reshape(n, -1, *leaf.shape[1:])
        expected.append(Expected(rows, whole=jnp.broadcast_to(leaf, (n, *leaf.shape))))
    return expected


def _scattered_bytes(sizes: Sizes) -> float:
    return (sizes.n() - 1) / sizes.n() * sizes.bytes("params")


def _case(mesh: str, rows: int, width: int) -> Case:
    axis = mesh.partition("=")[0]
    return Case(
        mesh,
        {
            "loss_fn": Function("tests.grading.sample_contract:squared_loss"),
            "params": {"w": ArraySpec((width, width), "d f"), "b": ArraySpec((width,), "f")},
            "batch": (
                ArraySpec((rows, width), f"b_{axis} d"),
                ArraySpec((rows, width), f"b_{axis} f"),
            ),
        },
        {"axis": axis},
    )


CONTRACT = Contract(
    kind="program",
    task="return the mean loss and this device's rows of the mean gradient",
    reference=sharded_gradients,
    oracle=_oracle,
    cases=(_case("dp=4", 8, 64), _case("fsdp=2", 6, 32)),
    sharding=True,
    communication=Communication(
        "one reduce-scatter of the gradients, plus scalars",
        ((Limit(("reduce_scatter",), "axis", _scattered_bytes),),),
    ),
    flops=FlopsLimit("one forward and one backward pass", programs=("forward",)),
    memory=MemoryLimit("two gradients", multiple=2.0),
    hints=(),
    minimal="",
    harder="",
)
