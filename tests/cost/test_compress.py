"""The bytes of compressed all-reduces are those that the inspector counts in programs."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.compress import SCHEMES, Compressed, compressed_bytes
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel import compress

P = jax.P
ROWS, COLUMNS, BLOCK, K, RANK = 24, 32, 16, 7, 3


def quantized(x: jax.Array, *, bits: int) -> jax.Array:
    second = jnp.zeros_like(x, shape=x.size // jax.lax.axis_size("dp"))
    return compress.quantized_all_reduce(
        x.ravel(), jnp.zeros_like(x.ravel()), second, axis="dp", block=BLOCK, bits=bits
    )[0]


def signs(x: jax.Array) -> jax.Array:
    second = jnp.zeros_like(x, shape=x.size // jax.lax.axis_size("dp"))
    zeros = jnp.zeros_like(x.ravel())
    return compress.sign_all_reduce(x.ravel(), zeros, second, axis="dp", block=BLOCK)[0]


def largest(x: jax.Array) -> jax.Array:
    return compress.top_k_all_reduce(x.ravel(), jnp.zeros_like(x.ravel()), axis="dp", k=K)[0]


def low_rank(x: jax.Array) -> jax.Array:
    q = jnp.ones((COLUMNS, RANK))
    return compress.powersgd_all_reduce(x, q, jnp.zeros_like(x), axis="dp")[0]


PROGRAMS = {
    "fp32": partial(jax.lax.pmean, axis_name="dp"),
    "int8": partial(quantized, bits=8),
    "int4": partial(quantized, bits=4),
    "sign": signs,
    "topk": largest,
    "powersgd": low_rank,
}


@pytest.mark.parametrize("n", [4, 6])
@pytest.mark.parametrize(("scheme", "program"), PROGRAMS.items())
def test_bytes_are_those_of_the_program(scheme: str, program: Callable, n: int) -> None:
    mesh = make_mesh({"dp": n})
    on_devices = jax.jit(jax.shard_map(program, mesh=mesh, in_specs=P("dp"), out_specs=P()))
    report = inspect(on_devices, jnp.ones((n * ROWS, COLUMNS)))
    sent = compressed_bytes(ROWS, COLUMNS, n, scheme=scheme, block=BLOCK, k=K, rank=RANK)
    assert report.wire_bytes_by_axis()["dp",] == pytest.approx(sent)


@pytest.mark.parametrize("scheme", ["int8", "int4", "sign", "topk"])
def test_operands_make_the_same_bytes(scheme: str) -> None:
    n, size = 6, 720
    numbers = K if scheme == "topk" else size
    operands = Compressed(scheme, numbers, BLOCK, n).operands
    sent = sum(wire_bytes(kind, operand.value, n) for kind, operand in operands.items())
    expected = compressed_bytes(size, 1, n, scheme=scheme, block=BLOCK, k=K, rank=RANK)
    assert sent == pytest.approx(expected)


def test_factors_of_a_matrix_are_all_reduced() -> None:
    (operand,) = Compressed("powersgd", RANK * (ROWS + COLUMNS), BLOCK, 6).operands.values()
    expected = compressed_bytes(ROWS, COLUMNS, 6, scheme="powersgd", block=BLOCK, k=K, rank=RANK)
    assert wire_bytes("all_reduce", operand.value, 6) == pytest.approx(expected)


def test_every_scheme_is_held_to_a_program() -> None:
    assert tuple(PROGRAMS) == SCHEMES


def test_unknown_schemes_and_numbers_are_refused() -> None:
    how = {"block": 8, "k": 4, "rank": 2}
    with pytest.raises(ValueError, match="scheme is 'int2'; use one of fp32, int8"):
        compressed_bytes(8, 8, 4, scheme="int2", **how)
    with pytest.raises(ValueError, match="n is 0; use a number above 0"):
        compressed_bytes(8, 8, 0, scheme="int8", **how)
