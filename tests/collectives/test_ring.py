import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import collectives
from jaxpar.mesh import make_mesh
from tests.collectives.one_device import assert_equal_one_device, on_devices, random, values
from tests.collectives.test_primitives import SIZES


@pytest.mark.parametrize("sizes", SIZES)
class TestEqualOneDevice:
    @pytest.mark.parametrize(
        "function", [collectives.ring_all_gather, collectives.two_way_ring_all_gather]
    )
    def test_all_gather(self, function, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: function(x, axis="device"),
            lambda x: jnp.stack([x] * len(x)),
            *(2, 3),
            sizes=sizes,
        )

    def test_reduce_scatter(self, sizes: str) -> None:
        n = make_mesh(sizes).shape["device"]
        assert_equal_one_device(
            lambda x: collectives.ring_reduce_scatter(x, axis="device"),
            lambda x: x.sum(0),
            *(n, 3),
            sizes=sizes,
        )

    def test_all_reduce_of_any_size(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.ring_all_reduce(x, axis="device"),
            lambda x: jnp.stack([x.sum(0)] * len(x)),
            *(2, 7),
            sizes=sizes,
        )


@pytest.mark.parametrize("n", [1, 2])
def test_the_smallest_rings(n: int) -> None:
    x = random(n, n, 3)

    def every(x: jax.Array) -> tuple[jax.Array, ...]:
        return (
            collectives.ring_all_gather(x, axis="device"),
            collectives.two_way_ring_all_gather(x, axis="device"),
            collectives.ring_reduce_scatter(x, axis="device"),
            collectives.ring_all_reduce(x, axis="device"),
        )

    gathered, two_way, scattered, reduced = values(every, x, f"device={n}")
    np.testing.assert_array_equal(gathered, np.stack([x] * n))
    np.testing.assert_array_equal(two_way, gathered)
    np.testing.assert_allclose(scattered, x.sum(0), rtol=1e-6)
    np.testing.assert_allclose(reduced, np.stack([x.sum(0)] * n), rtol=1e-6)


def test_what_travels_keeps_its_dtype() -> None:
    x = random(3, 3, 2).astype(jnp.bfloat16)
    y = values(lambda x: collectives.ring_reduce_scatter(x, axis="device"), x, "device=3")
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        y.astype(np.float32), x.astype(np.float32).sum(0), rtol=0.02, atol=0.02
    )


def test_chunks_must_match_the_axis() -> None:
    function = on_devices(
        lambda x: collectives.ring_reduce_scatter(x, axis="device"), make_mesh("device=8")
    )
    with pytest.raises(ValueError, match=r"ring_reduce_scatter: x has shape \(6,\)"):
        jax.eval_shape(function, np.zeros((8, 6)))
