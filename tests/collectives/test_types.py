import jax
import jax.numpy as jnp
import pytest

from tests.collectives.calls import BITS, Call, calls


@pytest.mark.parametrize("call", calls(), ids=str)
def test_dtype_is_kept_and_x_may_be_typed_as_equal_on_every_device(call: Call) -> None:
    dtype = jnp.uint8 if call.op in BITS else jnp.bfloat16
    function = call.on_devices(call.per_device, varying=False)
    y = jax.eval_shape(function, jax.ShapeDtypeStruct(call.shape, dtype))
    y, *place = jax.tree.leaves(y)
    assert y.dtype == dtype
    assert [index.dtype for index in place] == [jnp.int32] * len(place)
