"""Ring products equal one product, and never hold all that travels around the ring."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from jax import P, lax

from jaxpar.inspector import inspect
from jaxpar.parallel.ring_matmul import matmul_ring, ring_matmul
from tests.arrays import random
from tests.comm_lines import measured
from tests.parallel.calls import Call, assert_docstring_holds, assert_equal_one_device

ROWS, COLUMNS = P("tp"), P(None, "tp")
GATHERS = (ROWS, COLUMNS), COLUMNS  # [t/n, d], [d, f/n] -> [t, f/n]
SCATTERS = (COLUMNS, ROWS), ROWS  # [t, d/n], [d/n, f] -> [t/n, f]
X, W = random(24, 12), random(12, 36)
CALLS = [
    Call(ring_matmul, partial(ring_matmul, axis="tp"), (X, W), *GATHERS),
    Call(matmul_ring, partial(matmul_ring, axis="tp"), (X, W), *SCATTERS),
]


def gather_then_matmul(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.all_gather(x, "tp", tiled=True) @ w


def matmul_then_scatter(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.psum_scatter(x @ w, "tp", tiled=True)


def one_product(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


@pytest.mark.parametrize("sizes", ["tp=4", "dp=2,tp=3"])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call, sizes: str) -> None:
    assert_docstring_holds(call, sizes, axis="tp")


def test_a_product_that_scatters_equals_one_device() -> None:
    assert_equal_one_device(CALLS[1], one_product, "tp=4")


def test_a_gradient_is_summed_once_over_another_axis() -> None:
    """The weights are equal over dp, and x is not, so their gradients are summed over dp."""
    per_device, specs = partial(matmul_ring, axis="tp"), (P("dp", "tp"), ROWS)
    call = Call(matmul_ring, per_device, (X, W), specs, P(("dp", "tp")))
    assert_equal_one_device(call, one_product, "dp=2,tp=3")
    program = call.program("dp=2,tp=3", differentiate=True).lower(X, W)
    assert measured(program)["all_reduce", "dp"] == W.size // 3


@pytest.mark.parametrize(
    ("function", "collective", "specs", "sizes"),
    [
        (ring_matmul, gather_then_matmul, GATHERS, (8 * 16, 64, 8 * 2)),
        (matmul_ring, matmul_then_scatter, SCATTERS, (8 * 16, 8 * 2, 64)),
    ],
    ids=["gather", "scatter"],
)
def test_they_send_what_one_collective_sends_and_hold_less(
    function, collective, specs: tuple, sizes: tuple[int, int, int]
) -> None:
    """On 8 devices, where the blocks that travel are much larger than the others."""
    t, d, f = sizes
    args = random(t, d), random(d, f)
    ring, plain = (
        inspect(Call(function, way, args, *specs).program("tp=8", differentiate=False), *args)
        for way in (partial(function, axis="tp"), collective)
    )
    assert ring.wire_bytes_by_axis() == plain.wire_bytes_by_axis()
    assert ring.memory and plain.memory
    assert 2 * ring.memory.temp_bytes < plain.memory.temp_bytes
    for collective in ring.collectives:
        assert collective.pairs == tuple((j, (j + 1) % 8) for j in range(8))


def test_rows_that_do_not_divide() -> None:
    run = CALLS[1].program("tp=4", differentiate=False)
    says = r"matmul_ring: dim t \(size 10\) must be divisible by mesh axis tp \(size 4\)"
    with pytest.raises(ValueError, match=says):
        run.lower(jnp.zeros((10, 8)), jnp.zeros((8, 3)))
