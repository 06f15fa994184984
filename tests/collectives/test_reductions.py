import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import collectives
from jaxpar.mesh import make_mesh, varying_axes
from tests.collectives.one_device import assert_equal_one_device, on_devices, random, values
from tests.collectives.test_primitives import SIZES, only

OVER_DEVICES = {"sum": jnp.sum, "prod": jnp.prod, "min": jnp.min, "max": jnp.max}
BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@pytest.mark.parametrize("sizes", SIZES)
class TestEqualOneDevice:
    @pytest.mark.parametrize("op", ["sum", "prod"])
    def test_all_reduce(self, op: str, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.all_reduce(x, axis="device", op=op),
            lambda x: jnp.stack([OVER_DEVICES[op](x, axis=0)] * len(x)),
            *(2, 3),
            sizes=sizes,
        )

    @pytest.mark.parametrize("op", OVER_DEVICES)
    def test_reduce(self, op: str, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.reduce(x, axis="device", root=1, op=op),
            lambda x: only(1, x, OVER_DEVICES[op](x, axis=0)),
            *(2, 3),
            sizes=sizes,
        )

    @pytest.mark.parametrize("op", OVER_DEVICES)
    def test_reduce_scatter(self, op: str, sizes: str) -> None:
        n = make_mesh(sizes).shape["device"]
        assert_equal_one_device(
            lambda x: collectives.reduce_scatter(x, axis="device", op=op),
            lambda x: OVER_DEVICES[op](x, axis=0),
            *(n, 2),
            sizes=sizes,
        )

    def test_mean(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.mean_over_devices(x, axis="device"),
            lambda x: jnp.stack([x.mean(0)] * len(x)),
            3,
            sizes=sizes,
        )


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_bits(dtype) -> None:
    x = np.random.default_rng(0).integers(0, 256, (5, 3)).astype(dtype)

    def every(x: jax.Array) -> dict[str, jax.Array]:
        return {op: collectives.all_reduce(x, axis="device", op=op) for op in BITS}

    for op, y in values(every, x, "device=5").items():
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, np.stack([BITS[op].reduce(x, axis=0)] * 5))


@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes(op: str) -> None:
    x = random(5, 3)
    y = values(lambda x: collectives.all_reduce(x, axis="device", op=op), x, "device=5")
    np.testing.assert_array_equal(y, np.stack([getattr(np, op)(x, axis=0)] * 5))


@pytest.mark.parametrize("sizes", SIZES)
def test_locations_with_ties(sizes: str) -> None:
    """The lowest index on ties; small integers make many."""
    mesh = make_mesh(sizes).axis_sizes
    x = np.random.default_rng(0).integers(-2, 3, (*mesh, 4, 5)).astype(np.float32)

    def both(x: jax.Array):
        return (
            collectives.reduce_max_location(x, axis="device"),
            collectives.reduce_min_location(x, axis="device"),
        )

    device = len(mesh) - 1
    for (value, index), extreme, location in zip(
        values(both, x, sizes), (np.max, np.min), (np.argmax, np.argmin), strict=True
    ):
        assert index.dtype == np.int32
        whole = np.ones_like(x)
        np.testing.assert_array_equal(value, extreme(x, axis=device, keepdims=True) * whole)
        np.testing.assert_array_equal(index, location(x, axis=device, keepdims=True) * whole)


def test_results_equal_everywhere_are_typed_so() -> None:
    def types(x: jax.Array) -> jax.Array:
        for y in (
            collectives.broadcast(x, axis="device", root=0),
            collectives.all_reduce(x, axis="device"),
            collectives.all_reduce(x, axis="device", op="max"),
            collectives.all_reduce(x, axis="device", op="prod"),
            collectives.mean_over_devices(x, axis="device"),
            *collectives.reduce_min_location(x, axis="device"),
        ):
            assert varying_axes(y) == {"node"}
        return x

    jax.eval_shape(on_devices(types, make_mesh("node=2,device=4")), random(2, 4, 3))


def test_two_axes_are_one_group() -> None:
    x = random(2, 3, 4)

    def both(x: jax.Array) -> jax.Array:
        return collectives.all_reduce(x, axis=("node", "device"), op="prod")

    y = values(both, x, "node=2,device=3")
    np.testing.assert_allclose(y[1, 1], x.prod((0, 1)), rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: collectives.all_reduce(x, axis="device", op="mean"),
            "all_reduce: op 'mean' is unknown; use one of sum, prod, min, max, and, or, xor",
        ),
        (lambda x: collectives.reduce(x, axis="device", root=0, op="avg"), "reduce: op 'avg'"),
        (lambda x: collectives.reduce(x, axis="device", root=9), "reduce: root 9 "),
        (lambda x: collectives.reduce_scatter(x, axis="device"), r"reduce_scatter: .*\(6,\)"),
        (
            lambda x: collectives.reduce_scatter(jnp.zeros(8), axis="device", op="avg"),
            "reduce_scatter: op 'avg'",
        ),
    ],
)
def test_errors(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(on_devices(call, make_mesh("device=8")), np.zeros((8, 6)))
