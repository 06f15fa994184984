"""Data parallelism sends and holds what its docstrings say; wrong arguments have clear errors.

That it equals one device is in the contracts of its exercises.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.parallel import data
from tests.arrays import random
from tests.parallel.calls import Call, assert_docstring_holds

P = jax.P


def loss_fn(params: dict, batch: tuple) -> jax.Array:
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["w"]) @ params["out"]["w"] - y) ** 2)


PARAMS = {"w": random(3, 5), "out": {"w": random(5)}}
BATCH, MICROBATCHES = (random(36, 3), random(36)), (random(3, 12, 3), random(3, 12))
GRADIENTS = {"a": random(12, 7), "b": [random(12), random(12, 2, 2)]}
CALLS = [
    Call(
        data.data_parallel_gradients,
        lambda params, batch: data.data_parallel_gradients(loss_fn, params, batch, axis="dp"),
        (PARAMS, BATCH), (P(), P("dp")), P(), 1,
    ),
    Call(
        data.accumulate_gradients,
        lambda params, batch: data.accumulate_gradients(loss_fn, params, batch, axis="dp"),
        (PARAMS, MICROBATCHES), (P(), P(None, "dp")), P(), 1,
    ),
    Call(
        data.bucketed_all_reduce,
        lambda gradients: data.bucketed_all_reduce(gradients, axis="dp", bucket_bytes=64),
        (GRADIENTS,), (P("dp"),), P(),
    ),
    Call(
        data.masked_mean,
        lambda values, mask: data.masked_mean(values, mask, axis="dp"),
        (random(12, 2), np.ones((12, 2), bool)), (P("dp"), P("dp")), P(), 1,
    ),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(call, "dp=4,tp=2", axis="dp")


def test_gradients_of_two_dtypes_are_refused() -> None:
    gradients = {"a": jnp.zeros(2), "b": jnp.zeros(2, jnp.bfloat16)}
    with pytest.raises(ValueError, match=r"2 dtypes \(bfloat16, float32\)"):
        data.bucketed_all_reduce(gradients, axis="dp", bucket_bytes=8)


def test_no_gradients_need_no_bucket() -> None:
    assert data.bucketed_all_reduce({}, axis="dp", bucket_bytes=8) == {}
