"""Sequence parallelism equals one device, sends and holds what it says, and keeps what it names."""

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
from jaxpar.parallel import sequence, tensor
from tests.arrays import random
from tests.comm_lines import check_lines, measured

B, S, D, F = 4, 144, 6, 24  # n * n divides s: each device has n parts of its positions
RATE = 0.25
OVER = {"axis": "tp"}
KEEPS: tuple[sequence.Keep, ...] = ("shard", "gathered")


X, UP, DOWN = random(B, S, D), random(D, F) / 2, random(F, D) / 4


def mlp(x: Any, up: Any, down: Any, *, keep: sequence.Keep) -> jax.Array:
    (hidden,) = sequence.gathered_linear(x, up, **OVER, keep=keep)
    return sequence.scatter_sequence(nn.matmul(nn.gelu(hidden), down), **OVER)


def second_product(x: Any, *weights: Any, keep: sequence.Keep) -> jax.Array:
    return sequence.gathered_linear(x, *weights, **OVER, keep=keep)[1]


def one_mlp(x: Any, up: Any, down: Any) -> jax.Array:
    return nn.matmul(nn.gelu(nn.matmul(x, up)), down)


def layouts(text: str, sizes: str) -> Any:
    """The partition specs of layouts, without dp where the mesh has no dp."""
    specs = [spec(one if "dp" in sizes else one.replace("_dp", "")) for one in text.split(", ")]
    return specs[0] if len(specs) == 1 else tuple(specs)


def on_devices(sizes: str, function: Callable, takes: str, gives: str) -> Callable:
    mesh = make_mesh(sizes)
    specs = layouts(takes, sizes), layouts(gives, sizes)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=specs[0], out_specs=specs[1]))


def with_gradients(function: Callable) -> Callable:
    def both(cotangent: Any, *args: Any) -> tuple:
        y, pull = jax.vjp(function, *args)
        return y, *pull(cotangent)

    return both


STREAM, WEIGHTS = "b_dp t_tp d", "d f_tp, f_tp d"
ARGS = (X, UP, DOWN), f"{STREAM}, {WEIGHTS}"
WHOLE_ARGS = (X, UP, DOWN), f"b_dp t d, {WEIGHTS}"
WHOLE_MLP = lambda n: one_mlp  # noqa: E731
PIECES = {  # on devices, on one of n, arguments, their layouts, the result's
    "gather": (
        partial(sequence.gather_sequence, **OVER),
        lambda n: lambda x: jnp.tile(x, (1, n, 1)),  # what all devices hold, side by side
        (X,),
        STREAM,
        STREAM,
    ),
    "scatter": (
        partial(sequence.scatter_sequence, **OVER),
        lambda n: lambda x: x.reshape(B, n, -1, D).sum(axis=1),
        (X,),
        STREAM,
        STREAM,
    ),
    **{
        f"linear, {keep}": (
            partial(second_product, keep=keep),
            lambda n: lambda x, _, w: x @ w,
            (X, UP[:, ::-1], UP),
            f"{STREAM}, d f_tp, d f_tp",
            "b_dp s f_tp",
        )
        for keep in KEEPS
    },
    **{f"mlp, {keep}": (partial(mlp, keep=keep), WHOLE_MLP, *ARGS, STREAM) for keep in KEEPS},
    "exercise": (partial(sequence.sequence_parallel_mlp, **OVER), WHOLE_MLP, *ARGS, STREAM),
}


@pytest.mark.parametrize("sizes", ["tp=4", "dp=2,tp=3"])
@pytest.mark.parametrize("name", PIECES)
def test_it_equals_one_device(name: str, sizes: str) -> None:
    """With dp, weights are equal on all its devices and x is not: their gradients are summed."""
    function, one_of, args, takes, gives = PIECES[name]
    one_device = one_of(make_mesh(sizes).shape["tp"])
    cotangent = random(*jax.eval_shape(one_device, *args).shape)
    run = on_devices(sizes, with_gradients(function), f"{gives}, {takes}", f"{gives}, {takes}")
    expected = with_gradients(one_device)(jnp.asarray(cotangent), *args)
    for got, right in zip(run(cotangent, *args), expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "function", "again"),
    [
        ("gather", sequence.gather_sequence, 0),
        ("scatter", sequence.scatter_sequence, 0),
        ("linear, shard", sequence.gathered_linear, 1),
        ("linear, gathered", sequence.gathered_linear, 0),
        ("exercise", sequence.sequence_parallel_mlp, 0),
    ],
)
def test_it_sends_and_holds_what_it_says(name: str, function: Callable, again: int) -> None:
    forward, both, y = lowered(PIECES[name])
    names = {"x": X.size // 4, "n": 4, "again": again, "y": y.size // 4}
    sent = measured(forward), measured(both)
    check_lines(function, *sent, y.size / 4, axes={"axis": "tp"}, names=names)


def lowered(piece: tuple) -> tuple[Any, Any, Any]:
    """The forward and the gradient program on four devices, and the shape of the result."""
    function, _, args, takes, gives = piece
    run = on_devices("tp=4", function, takes, gives)
    y = jax.eval_shape(run, *args)
    both = on_devices("tp=4", with_gradients(function), f"{gives}, {takes}", f"{gives}, {takes}")
    return run.lower(*args), both.lower(y, *args), y


def test_kept_it_sends_what_tensor_parallelism_sends() -> None:
    whole = partial(tensor.parallel_mlp, **OVER)
    pieces = PIECES["mlp, gathered"], PIECES["mlp, shard"], (whole, None, *WHOLE_ARGS, "b_dp t d")
    kept, again, plain = (
        sum(c.total_wire_bytes or 0 for c in read_module(both.compiler_ir("stablehlo")))
        for _, both, _ in map(lowered, pieces)
    )
    assert kept == plain
    assert again - kept == 3 * X.nbytes / 4  # one all-gather


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
            takes = "b t_tp d, l d f_tp, l f_tp d"
            run = on_devices("tp=4", jax.grad(total, (0, 1, 2)), takes, takes)
            report = inspect(run, *args)
            assert report.memory
            temp.append(report.memory.temp_bytes)
        return (temp[1] - temp[0]) / 2

    assert grown("gathered") - grown("shard") == X.nbytes - X.nbytes / 4


@pytest.mark.full
def test_norm_dropout_and_residual_on_shards() -> None:
    """Each device has a dropout mask of its own; the gradient of scale is summed once."""
    scale, key, cotangent = random(D), jax.random.key(1), random(S, B, D).swapaxes(0, 1)

    def on_shards(cotangent: Any, *args: Any) -> tuple:
        mask = tensor.dropout(jnp.ones_like(cotangent), RATE, **OVER, key=key)

        def block(x: Any, scale: Any, *weights: Any) -> jax.Array:
            scale = lax.pcast(scale, "tp", to="varying")
            y = sequence.sequence_parallel_mlp(nn.rms_norm(x, scale), *weights, **OVER)
            return x + mask * y

        return mask, *with_gradients(block)(cotangent, *args)

    takes = "b t_tp d, d, d f_tp, f_tp d"
    run = on_devices("tp=4", on_shards, f"b t_tp d, {takes}", f"b t_tp d, b t_tp d, {takes}")
    args = X, scale, UP, DOWN
    mask, *got = run(cotangent, *args)

    def one_block(x: Any, scale: Any, *weights: Any) -> jax.Array:
        return x + mask * one_mlp(nn.rms_norm(x, scale), *weights)

    expected = with_gradients(one_block)(jnp.asarray(cotangent), *args)
    for one, right in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-4, atol=2e-5)
    masks = np.split(np.asarray(mask), 4, axis=1)
    assert all((masks[0] != other).any() for other in masks[1:])
    sent = read_module(run.lower(cotangent, *args).compiler_ir("stablehlo"))
    summed = [c for c in sent if c.kind == "all_reduce"]
    assert [c.operand_bytes * (c.times or 0) for c in summed] == [scale.nbytes]


@pytest.mark.parametrize("keep", KEEPS)
def test_16_bits_are_sent_and_returned(keep: sequence.Keep) -> None:
    args = [jnp.asarray(x, jnp.bfloat16) for x in (X, UP, DOWN)]
    _, _, _, takes, gives = PIECES["mlp, shard"]
    function = with_gradients(partial(mlp, keep=keep))
    run = on_devices("tp=4", function, f"{gives}, {takes}", f"{gives}, {takes}")
    sent = read_module(run.lower(args[0], *args).compiler_ir("stablehlo"))
    assert {c.dtype for c in sent} == {"bfloat16"}
    expected = with_gradients(one_mlp)(*(jnp.asarray(x, jnp.float32) for x in (args[0], *args)))
    for got, right in zip(run(args[0], *args), expected, strict=True):
        assert got.dtype == jnp.bfloat16
        near = 0.03 * float(jnp.abs(right).max())
        np.testing.assert_allclose(got.astype(jnp.float32), right, atol=near)
