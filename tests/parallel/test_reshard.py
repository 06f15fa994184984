"""Rows become columns, with the gradient of that, and what the docstring says is sent."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.parallel.reshard import reshard_rows_to_columns
from tests.parallel.calls import Call, assert_docstring_holds, assert_equal_one_device

P = jax.P
X = np.random.default_rng(0).normal(size=(12, 24)).astype(np.float32)


def call(axis: str) -> Call:
    per_device = partial(reshard_rows_to_columns, axis=axis)
    return Call(reshard_rows_to_columns, per_device, (X,), (P(axis),), P(None, axis))


@pytest.mark.parametrize(("sizes", "axis"), [("fsdp=4", "fsdp"), ("dp=2,tp=3", "tp")])
def test_it_equals_one_device(sizes: str, axis: str) -> None:
    assert_equal_one_device(call(axis), lambda x: x, sizes)


def test_its_docstring_holds() -> None:
    assert_docstring_holds(call("fsdp"), "fsdp=4", axis="fsdp")


def test_columns_that_do_not_divide_are_refused() -> None:
    run = jax.shard_map(
        partial(reshard_rows_to_columns, axis="fsdp"),
        mesh=make_mesh("fsdp=4"),
        in_specs=P("fsdp"),
        out_specs=P(None, "fsdp"),
    )
    message = r"dim f \(size 23\) must be divisible by mesh axis fsdp \(size 4\); pad f to 24"
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(run, jax.ShapeDtypeStruct((12, 23), np.float32))
