"""Compressed all-reduces give what one device computes, send few bits, and lose none for good."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import quantize
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel import compress
from tests.arrays import random
from tests.comm_lines import evaluate, memory
from tests.parallel.calls import Call, assert_close, assert_docstring_holds

P = jax.P
MESHES = pytest.mark.parametrize("sizes", ["dp=4", "dp=3,tp=2"])
WIDE = np.repeat(np.array([1, 10, 100], np.float32), 32)  # so that blocks differ in magnitude


def rounded(x: np.ndarray, block: int, bits: int) -> np.ndarray:
    """The numbers, each rounded to a multiple of its block's scale."""
    blocks = x.reshape(-1, block)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(2 ** (bits - 1) - 1)
    return (np.round(blocks / np.where(scales == 0, 1, scales)) * scales).reshape(x.shape)


def signs(x: np.ndarray, block: int) -> np.ndarray:
    """The sign of each number times the mean magnitude of its block."""
    blocks = x.reshape(-1, block)
    means = np.abs(blocks).mean(axis=1, keepdims=True)
    return np.where(blocks >= 0, means, -means).reshape(x.shape)


def in_two_halves(lossy: Callable, x: np.ndarray, error: np.ndarray, second: np.ndarray) -> tuple:
    """An all-reduce of [n, size] through n parts, with the errors of both halves."""
    sent = lossy(x + error)
    parts = sent.mean(axis=0) + second.reshape(-1)
    mean = lossy(parts)
    return mean, x + error - sent, (parts - mean).reshape(second.shape)


def largest(k: int, x: np.ndarray, error: np.ndarray) -> tuple:
    """The mean of the k largest of each row of [n, size], and what is left of the rows."""
    corrected = x + error
    sent = np.zeros_like(corrected)
    for row, full in zip(sent, corrected, strict=True):
        places = np.argsort(-np.abs(full))[:k]
        row[places] = full[places]
    return sent.mean(axis=0), corrected - sent


TWO_HALVES = pytest.mark.parametrize(
    ("reduce", "lossy"),
    [
        (partial(compress.quantized_all_reduce, block=8, bits=bits),
         partial(rounded, block=8, bits=bits))
        for bits in (8, 4)
    ]
    + [(partial(compress.sign_all_reduce, block=8), partial(signs, block=8))],
    ids=["int8", "int4", "sign"],
)  # fmt: skip


def on_devices(function: Callable, sizes: str, gives: tuple) -> Callable:
    """A function of each device's row of [n, ...], over dp; device by device, unless it is P()."""

    def of_rows(*rows: jax.Array) -> list:
        results = function(*(row[0] for row in rows), axis="dp")
        return [y if spec == P() else y[None] for y, spec in zip(results, gives, strict=True)]

    mesh = make_mesh(sizes)
    return jax.jit(
        jax.shard_map(of_rows, mesh=mesh, in_specs=P("dp"), out_specs=[*gives], check_vma=True)
    )


def rows(sizes: str, *shape: int) -> np.ndarray:
    return random(make_mesh(sizes).shape["dp"], *shape)


@MESHES
@TWO_HALVES
def test_both_halves_are_those_of_one_device(sizes: str, reduce: Callable, lossy: Callable) -> None:
    x, error = rows(sizes, 96) * WIDE, rows(sizes, 96)[::-1]
    second = rows(sizes, 96 // len(x))
    got = on_devices(reduce, sizes, (P(), P("dp"), P("dp")))(x, error, second)
    for one, other in zip(got, in_two_halves(lossy, x, error, second), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6 * np.abs(x).max())


@MESHES
def test_the_largest_are_those_of_one_device(sizes: str) -> None:
    x, error = rows(sizes, 96), rows(sizes, 96)[::-1]
    reduce = partial(compress.top_k_all_reduce, k=5)
    assert_close(on_devices(reduce, sizes, (P(), P("dp")))(x, error), largest(5, x, error))


@TWO_HALVES
def test_what_is_lost_comes_later(reduce: Callable, lossy: Callable) -> None:
    """With error feedback the sum of many means is that of one device; without, it is not."""
    x = rows("dp=4", 96) * WIDE
    step = on_devices(reduce, "dp=4", (P(), P("dp"), P("dp")))
    total, lossily, steps = 0, 0, 50
    error, second = jnp.zeros_like(x), jnp.zeros((4, 24))
    for _ in range(steps):
        mean, error, second = step(x, error, second)
        total += mean
        lossily += step(x, jnp.zeros_like(x), jnp.zeros((4, 24)))[0]
    exact = steps * x.mean(axis=0)
    left, never_sent = np.abs(total - exact).max(), np.abs(lossily - exact).max()
    assert left == pytest.approx(np.abs(error.mean(axis=0) + second.reshape(-1)).max(), rel=1e-2)
    assert left < never_sent / 8


@MESHES
def test_a_power_step_is_that_of_one_device(sizes: str) -> None:
    m, error, q = rows(sizes, 12, 8), rows(sizes, 12, 8)[::-1], random(8, 3)

    def reduce(m: jax.Array, error: jax.Array, *, axis: str) -> tuple:
        return compress.powersgd_all_reduce(m, jnp.asarray(q), error, axis=axis)

    v = m + error
    p, r = np.linalg.qr(v.mean(axis=0) @ q)
    p = p * np.sign(np.diag(r))  # Gram-Schmidt leaves each column on its side
    new_q = v.mean(axis=0).T @ p
    got = on_devices(reduce, sizes, (P(), P(), P("dp")))(m, error)
    assert_close(got, (p @ new_q.T, new_q, v - p @ new_q.T))


def test_a_mean_of_low_rank_is_found_whole() -> None:
    whole = random(12, 2) @ random(2, 8)
    m, q = np.stack([whole * factor for factor in (0.5, 1, 1.5, 1)]), jnp.asarray(random(8, 2))

    def reduce(m: jax.Array, *, axis: str) -> tuple:
        return compress.powersgd_all_reduce(m, q, jnp.zeros((12, 8)), axis=axis)

    mean, _, _ = on_devices(reduce, "dp=4", (P(), P(), P("dp")))(m)
    np.testing.assert_allclose(mean, whole, atol=1e-5)


def test_a_column_that_others_span_becomes_zero() -> None:
    p = random(6, 2)
    p = np.stack([p[:, 0], 2 * p[:, 0], p[:, 1], np.zeros(6, np.float32)], axis=1)
    columns = compress.orthogonalize(jnp.asarray(p))
    np.testing.assert_allclose(columns.T @ columns, np.diag([1, 0, 1, 0]), atol=1e-6)


@pytest.mark.parametrize("bits", [8, 4])
def test_numbers_are_near_their_codes(bits: int) -> None:
    x = np.concatenate([random(5, 16) * 10.0 ** random(5, 1), np.zeros((5, 16))], axis=1)
    codes, scales = quantize.quantize_blocks(jnp.asarray(x, jnp.float32), block=16, bits=bits)
    assert codes.dtype == f"int{bits}"
    assert jnp.abs(codes.astype(int)).max() == 2 ** (bits - 1) - 1
    again = quantize.dequantize_blocks(codes, scales)
    assert not again[:, 16:].any()
    steps = np.repeat(scales, 16, axis=1)
    assert np.all(np.abs(again - x) <= 0.5001 * steps)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@TWO_HALVES
def test_what_is_not_finite_is_not_hidden(reduce: Callable, lossy: Callable, value: float) -> None:
    x = rows("dp=4", 96)
    x[2, 70] = value
    step = on_devices(reduce, "dp=4", (P(), P("dp"), P("dp")))
    mean, _, _ = step(x, jnp.zeros_like(x), jnp.zeros((4, 24)))
    assert not np.isfinite(mean[64:72]).any()
    assert np.isfinite(mean[:64]).all()


@TWO_HALVES
def test_means_and_errors_are_wide(reduce: Callable, lossy: Callable) -> None:
    """Also where gradients are bfloat16, which would round what is lost away."""
    x, zeros = jnp.asarray(rows("dp=4", 96), jnp.bfloat16), jnp.zeros((4, 96))
    step = on_devices(reduce, "dp=4", (P(), P("dp"), P("dp")))
    results = step(x, zeros, jnp.zeros((4, 24)))
    assert {one.dtype for one in results} == {jnp.dtype("float32")}
    assert_close(results, step(x.astype(jnp.float32), zeros, jnp.zeros((4, 24))))


def test_the_largest_are_wide_too() -> None:
    x, zeros = jnp.asarray(rows("dp=4", 96), jnp.bfloat16), jnp.zeros((4, 96))
    step = on_devices(partial(compress.top_k_all_reduce, k=5), "dp=4", (P(), P("dp")))
    results = step(x, zeros)
    assert {one.dtype for one in results} == {jnp.dtype("float32")}
    assert_close(results, step(x.astype(jnp.float32), zeros))


X = (random(4 * 96), random(4 * 96), random(96))
SHARDED = (P("dp"), P("dp"), P("dp"))
CALLS = [
    Call(
        quantize.dequantize_blocks,
        lambda scales: quantize.dequantize_blocks(jnp.zeros(96, jnp.int8), scales),
        (random(12),), (P(),), P(), 0, names={"x": 96},
    ),
    *(
        Call(
            compress.quantized_all_reduce,
            lambda x, error, second, bits=bits: compress.quantized_all_reduce(
                x, error, second, axis="dp", block=8, bits=bits
            ),
            X, SHARDED, (P(), *SHARDED[1:]), 0, names={"block": 8, "bits": bits},
        )
        for bits in (8, 4)
    ),
    Call(
        compress.sign_all_reduce,
        lambda x, error, second: compress.sign_all_reduce(x, error, second, axis="dp", block=8),
        X, SHARDED, (P(), *SHARDED[1:]), 0, names={"block": 8},
    ),
    Call(
        compress.top_k_all_reduce,
        lambda x, error: compress.top_k_all_reduce(x, error, axis="dp", k=5),
        X[:2], SHARDED[:2], (P(), P("dp")), 0, names={"k": 5},
    ),
    Call(
        compress.powersgd_all_reduce,
        lambda m, q, error: compress.powersgd_all_reduce(m, q, error, axis="dp"),
        (random(4 * 12, 8), random(8, 3), random(4 * 12, 8)),
        (P("dp"), P(), P("dp")), (P(), P(), P("dp")), 0, names={"rows": 12, "cols": 8, "rank": 3},
    ),
    Call(compress.orthogonalize, compress.orthogonalize, (random(12, 3),), (P(),), P()),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(call, "dp=4,tp=2", axis="dp")


@pytest.mark.parametrize("bits", [8, 4])
def test_codes_take_the_memory_that_it_says(bits: int) -> None:
    codes, scales = quantize.quantize_blocks(jnp.ones(96), block=8, bits=bits)
    held = codes.size * jnp.iinfo(codes.dtype).bits / 32 + scales.size
    stated = evaluate(memory(quantize.quantize_blocks), {"x": 96, "bits": bits, "block": 8})
    assert held == stated


@pytest.mark.parametrize(
    ("reduce", "n", "sent"),
    [
        (partial(compress.quantized_all_reduce, block=64, bits=8), 8, 15_232),
        (partial(compress.quantized_all_reduce, block=64, bits=4), 8, 8_064),
        (partial(compress.sign_all_reduce, block=64), 8, 2_688),
    ],
    ids=["int8", "int4", "sign"],
)
def test_bytes_are_those_of_the_bits(reduce: Callable, n: int, sent: int) -> None:
    """Of 8,192 numbers, which take 57,344 bytes as they are."""
    size = 8192
    step = on_devices(reduce, f"dp={n}", (P(), P("dp"), P("dp")))
    report = inspect(step, *(jnp.zeros((n, size)),) * 2, jnp.zeros((n, size // n)))
    assert report.wire_bytes_by_axis() == {("dp",): sent}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: quantize.quantize_blocks(jnp.zeros(8), block=4, bits=6), "bits is 6"),
        (lambda: quantize.quantize_blocks(jnp.zeros(8), block=3, bits=8), "8 numbers in blocks of"),
        (lambda: quantize.quantize_blocks(jnp.zeros(8), block=0, bits=8), "8 numbers in blocks of"),
    ],
)
def test_bad_blocks_are_refused(wrong: Callable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize(
    ("reduce", "message"),
    [
        (partial(compress.quantized_all_reduce, block=16, bits=8), "multiple of 64"),
        (partial(compress.sign_all_reduce, block=16), "multiple of 64"),
        (partial(compress.sign_all_reduce, block=4), "block is 4"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(reduce: Callable, message: str) -> None:
    step = on_devices(reduce, "dp=4", (P(), P("dp"), P("dp")))
    with pytest.raises(ValueError, match=message):
        step(*(jnp.zeros((4, 96)),) * 2, jnp.zeros((4, 24)))


@pytest.mark.parametrize("k", [0, 97])
def test_more_numbers_than_there_are_cannot_be_sent(k: int) -> None:
    step = on_devices(partial(compress.top_k_all_reduce, k=k), "dp=4", (P(), P("dp")))
    with pytest.raises(ValueError, match=f"k is {k}, of 96 numbers; use 1 to 96"):
        step(jnp.zeros((4, 96)), jnp.zeros((4, 96)))
