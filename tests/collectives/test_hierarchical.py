import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import collectives
from jaxpar.mesh import make_mesh, varying_axes
from tests.collectives.one_device import assert_equal_one_device, on_devices

AXES = {"inner": "device", "outer": "node"}


@pytest.mark.parametrize("sizes", ["node=2,device=4", "node=3,device=2"])
class TestEqualOneDevice:
    def test_all_gather(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.hierarchical_all_gather(x, **AXES),
            lambda x: jnp.stack([x] * len(x)),
            *(2, 3),
            sizes=sizes,
            over_all_axes=True,
        )

    def test_reduce_scatter(self, sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.hierarchical_reduce_scatter(x, **AXES),
            lambda x: x.sum(0),
            *(make_mesh(sizes).size, 3),
            sizes=sizes,
            over_all_axes=True,
        )

    @pytest.mark.parametrize("shape", [(), (2, 7)])
    def test_all_reduce_of_any_size(self, shape: tuple[int, ...], sizes: str) -> None:
        assert_equal_one_device(
            lambda x: collectives.hierarchical_all_reduce(x, **AXES),
            lambda x: jnp.stack([x.sum(0)] * len(x)),
            *shape,
            sizes=sizes,
            over_all_axes=True,
        )


def test_the_sum_is_typed_as_equal_everywhere() -> None:
    def types(x: jax.Array) -> jax.Array:
        assert varying_axes(collectives.hierarchical_all_reduce(x, **AXES)) == set()
        return x

    jax.eval_shape(on_devices(types, make_mesh("node=2,device=4")), np.zeros((2, 4, 3)))


def test_chunks_must_match_both_axes() -> None:
    function = on_devices(
        lambda x: collectives.hierarchical_reduce_scatter(x, **AXES), make_mesh("node=2,device=4")
    )
    message = r"hierarchical_reduce_scatter: x has shape \(4,\); .* axis node\*device \(8\)"
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(function, np.zeros((2, 4, 4)))
