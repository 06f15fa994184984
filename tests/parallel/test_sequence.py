"""Sequence parallelism equals one device, sends and holds what it says, and keeps what it names.

That `sequence_parallel_mlp` equals one device is in its contract.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpar import nn
from jaxpar.inspector import inspect
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh, spec
from jaxpar.parallel import sequence
from tests.arrays import random
from tests.parallel.calls import (
    Call,
    assert_docstring_holds,
    assert_equal_one_device,
)

B, S, D, F = 4, 144, 6, 24  # n * n divides s: each device has n parts of its positions
OVER = {"axis": "tp"}
KEEPS: tuple[sequence.Keep, ...] = ("shard", "gathered")


X, UP, DOWN = random(B, S, D), random(D, F) / 2, random(F, D) / 4
STREAM, WEIGHTS = spec("b t_tp d"), (spec("d f_tp"), spec("f_tp d"))


def mlp(x: Any, up: Any, down: Any, *, keep: sequence.Keep) -> jax.Array:
    (hidden,) = sequence.gathered_linear(x, up, **OVER, keep=keep)
    return sequence.scatter_sequence(nn.matmul(nn.gelu(hidden), down), **OVER)


def one_mlp(x: Any, up: Any, down: Any) -> jax.Array:
    return nn.matmul(nn.gelu(nn.matmul(x, up)), down)


def of_stream(function: Callable, per_device: Callable, *weights: Any) -> Call:
    """A call of x and weights that returns positions of the sequence, as x is split."""
    specs = STREAM, *WEIGHTS[: len(weights)]
    return Call(function, per_device, (X, *weights), specs, STREAM)


def gathered_linear(keep: sequence.Keep) -> Call:
    """The second of two products whose x is gathered only once."""

    def second(x: Any, *weights: Any) -> jax.Array:
        return sequence.gathered_linear(x, *weights, **OVER, keep=keep)[1]

    again = {"again": int(keep == "shard")}
    specs = STREAM, WEIGHTS[0], WEIGHTS[0]
    args = X, UP[:, ::-1], UP
    return Call(sequence.gathered_linear, second, args, specs, spec("b s f_tp"), names=again)


GATHER = of_stream(sequence.gather_sequence, partial(sequence.gather_sequence, **OVER))
SCATTER = of_stream(sequence.scatter_sequence, partial(sequence.scatter_sequence, **OVER))
LINEAR = {keep: gathered_linear(keep) for keep in KEEPS}
MLP = {keep: of_stream(mlp, partial(mlp, keep=keep), UP, DOWN) for keep in KEEPS}
EXERCISE = of_stream(
    sequence.sequence_parallel_mlp, partial(sequence.sequence_parallel_mlp, **OVER), UP, DOWN
)


@pytest.mark.parametrize("n", [3, 4])
def test_it_equals_one_device(n: int) -> None:
    gathered_by_all = lambda x: jnp.tile(x, (1, n, 1))  # noqa: E731
    sum_of_parts = lambda x: x.reshape(B, n, -1, D).sum(axis=1)  # noqa: E731
    for call, one_device in (
        (GATHER, gathered_by_all),
        (SCATTER, sum_of_parts),
        *((LINEAR[keep], lambda x, _, w: x @ w) for keep in KEEPS),
        *((MLP[keep], one_mlp) for keep in KEEPS),
    ):
        assert_equal_one_device(call, one_device, f"tp={n}")


@pytest.mark.parametrize("keep", KEEPS)
def test_gradients_of_weights_are_summed_over_another_axis(keep: sequence.Keep) -> None:
    """On all devices of dp, weights are equal and x is not."""
    rows = spec("b_dp t_tp d")
    call = Call(mlp, partial(mlp, keep=keep), (X, UP, DOWN), (rows, *WEIGHTS), rows)
    assert_equal_one_device(call, one_mlp, "dp=2,tp=3")


@pytest.mark.parametrize("call", [GATHER, SCATTER, *LINEAR.values(), EXERCISE], ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(call, "tp=4", axis="tp")


def test_what_a_layer_keeps() -> None:
    """One more layer keeps its own positions, or all the gathered ones, beside what both keep."""

    def grown(keep: sequence.Keep) -> float:
        def total(x: Any, *weights: Any) -> jax.Array:
            def layer(x: Any, weights: Any) -> tuple:
                return x + mlp(jnp.sin(x), *weights, keep=keep), None

            return lax.scan(layer, x, weights)[0].sum()

        temp = []
        for layers in (2, 4):
            args = X, np.stack([UP] * layers), np.stack([DOWN] * layers)
            specs = STREAM, spec("l d f_tp"), spec("l f_tp d")
            gradients = jax.shard_map(
                jax.grad(total, (0, 1, 2)), mesh=make_mesh("tp=4"), in_specs=specs, out_specs=specs
            )
            report = inspect(jax.jit(gradients), *args)
            assert report.memory
            temp.append(report.memory.temp_bytes)
        return (temp[1] - temp[0]) / 2

    assert grown("gathered") - grown("shard") == X.nbytes - X.nbytes / 4


@pytest.mark.parametrize("keep", KEEPS)
def test_16_bits_are_sent_and_returned(keep: sequence.Keep) -> None:
    args = [jnp.asarray(x, jnp.bfloat16) for x in (X, UP, DOWN)]
    run = MLP[keep].program("tp=4", differentiate=True)
    sent = read_module(run.lower(*args).compiler_ir("stablehlo"))
    assert {c.dtype for c in sent} == {"bfloat16"}
    wide = (jnp.asarray(x, jnp.float32) for x in args)
    expected = jax.jit(MLP[keep].with_gradients(one_mlp))(*wide)
    for got, right in zip(jax.tree.leaves(run(*args)), jax.tree.leaves(expected), strict=True):
        assert got.dtype == jnp.bfloat16
        near = 0.03 * float(jnp.abs(right).max())
        np.testing.assert_allclose(got.astype(jnp.float32), right, atol=near)
