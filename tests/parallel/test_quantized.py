"""Weights in 8 bits give what one device computes, send a quarter, and are floats in slices."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel import quantized
from tests.arrays import random
from tests.comm_lines import evaluate, measured, memory, stated
from tests.parallel.calls import Call, assert_close, assert_docstring_holds

P = jax.P
MESHES = pytest.mark.parametrize("sizes", ["tp=4", "dp=2,tp=3"])
WIDE = np.array([1, 10, 100, 0], np.float32)  # so that columns differ, and one is zeros


def codes_and_scales(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest multiples of each column's scale."""
    scales = np.abs(w).max(axis=0) / np.float32(127)
    return np.round(w / np.where(scales == 0, 1, scales)).astype(np.int8), scales


def over(function: Callable, sizes: str, takes: tuple, gives: object) -> Callable:
    mesh = make_mesh(sizes)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives))


quantize_rows = partial(quantized.quantize_rows, axis="tp")
ROWS = P("tp")


@MESHES
def test_columns_have_one_scale_on_all_devices(sizes: str) -> None:
    w = random(24, 20) * np.tile(WIDE, 5)
    codes, scales = over(quantize_rows, sizes, (ROWS,), (ROWS, P()))(w)
    right_codes, right_scales = codes_and_scales(w)
    np.testing.assert_allclose(scales, right_scales, rtol=1e-6)
    assert np.abs(codes.astype(int) - right_codes).max() <= 1  # in the middle, either may be taken
    assert np.all(np.abs(codes * scales[None] - w) <= 0.5001 * scales[None])
    assert codes.dtype == jnp.int8 and jnp.abs(codes.astype(int)).max() == 127


def test_scales_of_bfloat16_are_float32() -> None:
    w = jnp.asarray(random(24, 20), jnp.bfloat16)
    codes, scales = over(quantize_rows, "tp=4", (ROWS,), (ROWS, P()))(w)
    right, right_scales = codes_and_scales(np.asarray(w, np.float32))
    assert scales.dtype == jnp.float32 and np.abs(codes.astype(int) - right).max() <= 1
    np.testing.assert_allclose(scales, right_scales, rtol=1e-6)


@MESHES
@pytest.mark.parametrize("width", [1, 5, 20])
def test_a_product_by_slices_is_the_product(sizes: str, width: int) -> None:
    x, (codes, scales) = random(6, 24), codes_and_scales(random(24, 20))
    product = partial(quantized.int8_row_linear, axis="tp", width=width)
    y = over(product, sizes, (P(None, "tp"), ROWS, P()), P())(x, codes, scales)
    assert_close(y, x @ (codes * scales))


@pytest.mark.parametrize("width", [0, 3, 40])
def test_slices_that_are_not_full_are_refused(width: int) -> None:
    product = partial(quantized.int8_row_linear, axis="tp", width=width)
    with pytest.raises(ValueError, match=f"20 columns, {width} at a time"):
        over(product, "tp=4", (P(None, "tp"), ROWS, P()), P())(
            random(6, 24), np.zeros((24, 20), np.int8), random(20)
        )


def two_matrices(params: dict, x: jax.Array) -> jax.Array:
    return x + jnp.tanh(x @ params["up"]) @ params["down"]


def layers(count: int, d: int, f: int) -> tuple[dict, dict]:
    """Codes and scales of so many layers."""
    pairs = {
        name: [codes_and_scales(random(rows, cols) / rows) for _ in range(count)]
        for name, rows, cols in (("up", d, f), ("down", f, d))
    }
    return tuple(
        {name: jnp.stack([pair[i] for pair in made]) for name, made in pairs.items()}
        for i in range(2)
    )


@pytest.mark.parametrize("sizes", ["dp=2", "dp=3,tp=2"])
def test_quantized_layers_are_those_of_the_floats(sizes: str) -> None:
    codes, scales = layers(3, 8, 12)
    x = random(12, 8)

    def of_floats(codes: dict, scales: dict, x: jax.Array) -> jax.Array:
        for i in range(3):
            x = two_matrices({name: codes[name][i] * scales[name][i] for name in codes}, x)
        return x

    def both(apply: Callable, x: jax.Array) -> tuple:
        y, pull = jax.vjp(partial(apply, codes, scales), x)
        return y, pull(y)

    apply = partial(quantized.quantized_layers, two_matrices)
    rows = P("dp")
    got = over(partial(both, apply), sizes, (rows,), (rows, (rows,)))(x)
    with jax.numpy_rank_promotion("allow"):
        assert_close(got, both(of_floats, x))


def test_no_more_than_one_layer_is_floats() -> None:
    """Of 32 layers, forward and with the gradient: with all else, less than six layers."""
    arguments = *layers(32, 64, 64), random(4, 64)
    apply = partial(quantized.quantized_layers, two_matrices)
    gradient = jax.grad(lambda *args: jnp.sum(apply(*args) ** 2), argnums=2)
    of_layer = 4 * 2 * 64 * 64
    for program in (apply, gradient):
        assert inspect(jax.jit(program), *arguments).memory.temp_bytes < 6 * of_layer


gather = partial(quantized.int8_all_gather, axis="tp", block=8)


@MESHES
def test_gathered_rows_are_rounded_in_blocks(sizes: str) -> None:
    w = random(12, 24) * np.repeat(WIDE[:3], 8)
    y = over(gather, sizes, (ROWS,), P("tp"))(w)
    whole = y.reshape(-1, *w.shape)
    assert np.array_equal(whole, np.broadcast_to(whole[0], whole.shape))
    steps = np.abs(w).reshape(12, 3, 8).max(axis=2).repeat(8, axis=1) / 127
    assert np.all(np.abs(whole[0] - w) <= 0.501 * steps)
    assert np.abs(whole[0] - w).max() > 0.2 * steps.max()


@MESHES
def test_the_gradient_is_that_of_a_gather(sizes: str) -> None:
    """As of lax.all_gather, with any cotangents, that differ between devices."""
    w = random(12, 24)

    def gradient(function: Callable, w: jax.Array) -> jax.Array:
        y, pull = jax.vjp(function, w)
        c = jnp.sin(jnp.arange(y.size).reshape(y.shape) + lax.axis_index("tp"))
        return pull(c)[0]

    plain = partial(lax.all_gather, axis_name="tp", tiled=True)
    got, right = (
        over(partial(gradient, function), sizes, (ROWS,), ROWS)(w) for function in (gather, plain)
    )
    assert_close(got, right)


def test_rows_that_blocks_do_not_fill_are_refused() -> None:
    with pytest.raises(ValueError, match="20 numbers in blocks of 8"):
        over(gather, "tp=4", (ROWS,), P("tp"))(random(12, 20))


X, W = random(6, 24), random(24, 20)
CODES, SCALES = map(jnp.asarray, codes_and_scales(W))
LAYER_CODES, LAYER_SCALES = layers(3, 8, 12)
CALLS = [
    Call(
        quantized.int8_row_linear,
        lambda x: quantized.int8_row_linear(
            x, CODES[:6], SCALES, axis="tp", width=5
        ),
        (X,), (P(None, "tp"),), P(),
    ),
    Call(
        quantized.quantized_layers,
        lambda x: quantized.quantized_layers(two_matrices, LAYER_CODES, LAYER_SCALES, x),
        (random(12, 8),), (P("tp"),), P("tp"),
    ),
    Call(
        quantized.int8_all_gather, lambda w_shard: gather(w_shard),
        (random(12, 24),), (ROWS,), P("tp"), names={"block": 8},
    ),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(call, "dp=2,tp=4", axis="tp")


def test_scales_are_all_that_rows_send() -> None:
    program = over(quantize_rows, "dp=2,tp=4", (ROWS,), (ROWS, P()))
    names = {"w_shard": 6 * 20, "cols": 20}
    sent = measured(program.lower(W))
    assert sent == stated(quantized.quantize_rows, "forward", {"axis": "tp"}, names)
    codes, scales = program(W)
    held = codes.size / 4 / 4 + scales.size  # a quarter of four bytes, on one device of four
    assert held == evaluate(memory(quantized.quantize_rows), names)


@pytest.mark.parametrize("sizes", ["tp=8"])
def test_a_gather_in_8_bits_sends_a_quarter(sizes: str) -> None:
    rows = jax.ShapeDtypeStruct((256, 512), jnp.float32)
    wide = partial(quantized.int8_all_gather, axis="tp", block=64)
    report = inspect(over(wide, sizes, (ROWS,), P("tp")), rows)
    assert report.wire_bytes_by_axis() == {("tp",): 121_856}
