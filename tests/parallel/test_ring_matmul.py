"""Ring products equal one product, and never hold all that travels around the ring."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P, lax

from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel.ring_matmul import matmul_ring, ring_matmul
from tests.arrays import random
from tests.comm_lines import check_lines, measured

MESHES = ("tp=4", "dp=2,tp=3")
ROWS, COLUMNS = P("tp"), P(None, "tp")
FUNCTIONS = {
    ring_matmul: ((ROWS, COLUMNS), COLUMNS),  # [t/n, d], [d, f/n] -> [t, f/n]
    matmul_ring: ((COLUMNS, ROWS), ROWS),  # [t, d/n], [d/n, f] -> [t/n, f]
}
EACH = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)


def gather_then_matmul(x: jax.Array, w: jax.Array, *, axis: str) -> jax.Array:
    return lax.all_gather(x, axis, tiled=True) @ w


def matmul_then_scatter(x: jax.Array, w: jax.Array, *, axis: str) -> jax.Array:
    return lax.psum_scatter(x @ w, axis, tiled=True)


LIKE = {ring_matmul: gather_then_matmul, matmul_ring: matmul_then_scatter}
X, W, C = random(24, 12), random(12, 36), random(24, 36)


def on_devices(
    sizes: str, function: Callable, *, differentiate: bool, specs: Any = None
) -> jax.stages.Wrapped:
    """The product on a mesh, with the gradients of <result, c>."""
    takes, gives = specs or FUNCTIONS[function]

    def on_shards(x: Any, w: Any, c: Any) -> Any:
        y, pull = jax.vjp(partial(function, axis="tp"), x, w)
        return (y, *pull(c)) if differentiate else y

    out = (gives, *takes) if differentiate else gives
    mesh = make_mesh(sizes)
    return jax.jit(jax.shard_map(on_shards, mesh=mesh, in_specs=(*takes, gives), out_specs=out))


@EACH
@pytest.mark.parametrize("sizes", MESHES)
def test_values_and_gradients_equal_one_device(sizes: str, function: Callable) -> None:
    got = on_devices(sizes, function, differentiate=True)(X, W, C)
    for one, right in zip(got, (X @ W, C @ W.T, X.T @ C), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=2e-5)


@EACH
@pytest.mark.parametrize("sizes", MESHES)
def test_they_send_and_hold_what_they_say(sizes: str, function: Callable) -> None:
    n = make_mesh(sizes).shape["tp"]
    forward, both = (
        measured(on_devices(sizes, function, differentiate=d).lower(X, W, C)) for d in (False, True)
    )
    names = {"n": n, "x": X.size // n, "y": C.size // n}
    check_lines(function, forward, both, names["y"], axes={"axis": "tp"}, names=names)


@EACH
def test_they_send_what_one_collective_sends_and_hold_less(function: Callable) -> None:
    """On 8 devices, where the blocks that travel are much larger than the others."""
    wide = (8 * 16, 64, 8 * 2) if function is ring_matmul else (8 * 16, 8 * 2, 64)
    x, w, c = random(*wide[:2]), random(*wide[1:]), random(wide[0], wide[2])
    specs = FUNCTIONS[function]
    ring, plain = (
        inspect(on_devices("tp=8", each, differentiate=False, specs=specs), x, w, c)
        for each in (function, LIKE[function])
    )
    assert ring.wire_bytes_by_axis() == plain.wire_bytes_by_axis()
    assert ring.memory and plain.memory
    assert 2 * ring.memory.temp_bytes < plain.memory.temp_bytes
    for collective in ring.collectives:
        assert collective.pairs == tuple((j, (j + 1) % 8) for j in range(8))


@EACH
def test_a_gradient_is_summed_once_over_another_axis(function: Callable) -> None:
    """The weights are equal over dp, and x is not, so their gradients are summed over dp."""
    takes, gives = FUNCTIONS[function]
    rows, columns = P(("dp", "tp")), P("dp", "tp")
    batch = {ROWS: rows, COLUMNS: columns}
    specs = ((batch[takes[0]], takes[1]), batch[gives])
    run = on_devices("dp=2,tp=3", function, differentiate=True, specs=specs)
    assert measured(run.lower(X, W, C))["all_reduce", "dp"] == W.size // 3
    for one, right in zip(run(X, W, C), (X @ W, C @ W.T, X.T @ C), strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=2e-5)


def test_rows_that_do_not_divide() -> None:
    run = on_devices("tp=4", matmul_ring, differentiate=False)
    says = r"matmul_ring: dim t \(size 10\) must be divisible by mesh axis tp \(size 4\)"
    with pytest.raises(ValueError, match=says):
        run.lower(jnp.zeros((10, 8)), jnp.zeros((8, 3)), jnp.zeros((12, 3)))
