import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import collectives
from jaxpar.mesh import make_mesh
from tests.collectives.one_device import assert_equal_one_device, on_devices, random, values

SIZES = ["device=8", "node=2,device=5"]


def only(i: int, x: jax.Array, y: jax.Array) -> jax.Array:
    """Zeros for every device of x, but y for device i."""
    return jnp.zeros((len(x), *y.shape), y.dtype).at[i].set(y)


@pytest.mark.parametrize("sizes", SIZES)
class TestEqualOneDevice:
    def test_add_rank(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.add_rank(x, axis="device"),
            lambda x: x + jnp.arange(len(x), dtype=x.dtype)[:, None],
            3,
            sizes=sizes,
        )

    def test_broadcast(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.broadcast(x, axis="device", root=2),
            lambda x: jnp.stack([x[2]] * len(x)),
            3,
            sizes=sizes,
        )

    def test_scatter(self, sizes: str) -> None:
        n = make_mesh(sizes).shape["device"]
        assert_equal_one_device(
            lambda x: collectives.scatter(x, axis="device", root=3),
            lambda x: x[3],
            *(n, 3),
            sizes=sizes,
        )

    def test_gather(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.gather(x, axis="device", root=3),
            lambda x: only(3, x, x),
            *(2, 3),
            sizes=sizes,
        )

    def test_all_gather(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.all_gather(x, axis="device"),
            lambda x: jnp.stack([x] * len(x)),
            *(2, 3),
            sizes=sizes,
        )

    @pytest.mark.parametrize(
        "function", [collectives.all_to_all, collectives.all_to_all_by_permutes]
    )
    def test_all_to_all(self, function, sizes: str) -> None:
        n = make_mesh(sizes).shape["device"]
        assert_equal_one_device(
            lambda x: function(x, axis="device"), lambda x: x.swapaxes(0, 1), *(n, 3), sizes=sizes
        )

    def test_permute(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.permute(x, axis="device", shift=-2),
            lambda x: jnp.roll(x, -2, axis=0),
            3,
            sizes=sizes,
        )


def test_two_axes_are_one_group() -> None:
    x = random(2, 3, 4)
    both = ("node", "device")
    y = values(lambda x: collectives.all_gather(x, axis=both), x, "node=2,device=3")
    np.testing.assert_array_equal(y[1, 2], x.reshape(6, 4))
    y = values(lambda x: collectives.permute(x, axis=both, shift=1), x, "node=2,device=3")
    np.testing.assert_array_equal(y[1, 0], x[0, 2])


def test_no_axis_is_one_device() -> None:
    x = jnp.asarray(random(1, 3))
    for y in (
        collectives.broadcast(x, axis=None, root=0),
        collectives.all_gather(x[0], axis=None),
        collectives.all_to_all(x, axis=None),
        collectives.permute(x, axis=None, shift=2),
        collectives.reduce(x, axis=None, root=0, op="max"),
        collectives.all_reduce(x, axis=None, op="prod"),
        collectives.reduce_scatter(x[None], axis=None, op="min"),
    ):
        np.testing.assert_array_equal(y, x)


def test_a_rank_keeps_the_dtype() -> None:
    x = np.zeros((8, 2), jnp.bfloat16)
    y = values(lambda x: collectives.add_rank(x, axis="device"), x)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_array_equal(y[:, 0].astype(np.int32), np.arange(8))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: collectives.scatter(x, axis="device", root=0),
            r"scatter: x has shape \(6,\); dim 0 must be the size of mesh axis device \(8\); "
            r"reshape x to \[8, ...\], a chunk for each device",
        ),
        (lambda x: collectives.all_to_all(x, axis="device"), r"all_to_all: .*\(6,\).*\(8\)"),
        (lambda x: collectives.all_to_all_by_permutes(x, axis="device"), "all_to_all_by_permutes"),
        (
            lambda x: collectives.broadcast(x, axis="device", root=8),
            r"broadcast: root 8 on mesh axis device \(size 8\); use a root from 0 to 7",
        ),
        (lambda x: collectives.gather(x, axis="device", root=-1), "gather: root -1 "),
        (lambda x: collectives.scatter(jnp.zeros(8), axis="device", root=8), "scatter: root 8 "),
    ],
)
def test_errors(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(on_devices(call, make_mesh("device=8")), np.zeros((8, 6)))
