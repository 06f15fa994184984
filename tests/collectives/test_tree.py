import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import collectives
from jaxpar.mesh import make_mesh
from tests.collectives.one_device import assert_equal_one_device, on_devices, random, values
from tests.collectives.test_primitives import SIZES, only

POWERS_OF_TWO = ["device=8", "node=2,device=4"]


@pytest.mark.parametrize("sizes", SIZES)
class TestTreesEqualOneDevice:
    def test_broadcast(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.tree_broadcast(x, axis="device", root=3),
            lambda x: jnp.stack([x[3]] * len(x)),
            *(2, 3),
            sizes=sizes,
        )

    def test_reduce(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.tree_reduce(x, axis="device", root=3),
            lambda x: only(3, x, x.sum(0)),
            *(2, 3),
            sizes=sizes,
        )


@pytest.mark.parametrize("sizes", POWERS_OF_TWO)
class TestDoublingEqualsOneDevice:
    def test_all_gather(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.recursive_doubling_all_gather(x, axis="device"),
            lambda x: jnp.stack([x] * len(x)),
            *(2, 3),
            sizes=sizes,
        )

    def test_all_reduce(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.recursive_doubling_all_reduce(x, axis="device"),
            lambda x: jnp.stack([x.sum(0)] * len(x)),
            *(2, 3),
            sizes=sizes,
        )


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
def test_every_root_of_every_tree(n: int) -> None:
    x = random(n, 2)

    def every(x: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        return [
            (
                collectives.tree_broadcast(x, axis="device", root=root),
                collectives.tree_reduce(x, axis="device", root=root),
            )
            for root in range(n)
        ]

    for root, (copied, reduced) in enumerate(values(every, x, f"device={n}")):
        np.testing.assert_array_equal(copied, np.stack([x[root]] * n))
        np.testing.assert_allclose(reduced[root], x.sum(0), rtol=1e-5)
        np.testing.assert_array_equal(np.delete(reduced, root, axis=0), 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: collectives.tree_broadcast(x, axis="device", root=6), "tree_broadcast: root 6 "),
        (lambda x: collectives.tree_reduce(x, axis="device", root=-1), "tree_reduce: root -1 "),
        (
            lambda x: collectives.recursive_doubling_all_reduce(x, axis="device"),
            "recursive_doubling_all_reduce: mesh axis device has size 6; the size must be a power "
            "of two; use 4 or 8 devices, or a ring",
        ),
        (
            lambda x: collectives.recursive_doubling_all_gather(x, axis="device"),
            "recursive_doubling_all_gather: mesh axis device has size 6",
        ),
    ],
)
def test_errors(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(on_devices(call, make_mesh("device=6")), np.zeros((6, 3)))
