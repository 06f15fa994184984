"""Data parallelism equals one device, and sends and holds what its docstrings say."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh
from jaxpar.parallel import data
from tests.arrays import random
from tests.comm_lines import check_lines, measured

P = jax.P
M = 3


def loss_fn(params: dict, batch: tuple) -> jax.Array:
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["w"]) @ params["out"]["w"] - y) ** 2)


PARAMS = {"w": random(3, 5), "out": {"w": random(5)}}
MICROBATCHES = (random(M, 12, 3), random(M, 12))
BATCH = tuple(leaf.reshape(-1, *leaf.shape[2:]) for leaf in MICROBATCHES)
GRADIENTS = {"a": random(12, 7), "b": [random(12), random(12, 2, 2)]}
VALUES, MASK = random(12, 2), np.arange(12)[:, None].repeat(2, axis=1) < 2


@dataclass(frozen=True)
class Call:
    """A function of x, which is differentiated, and of y; `expected(n)` is its one-device form."""

    function: Callable
    on_shards: Callable
    expected: Callable[[int], Callable]
    x: Any
    y: Any
    x_spec: P
    y_spec: P

    def program(self, sizes: str, differentiate: bool) -> Callable:
        function = with_pullback(self.on_shards) if differentiate else self.on_shards
        out_specs = (P(), self.x_spec) if differentiate else P()
        in_specs = (self.x_spec, self.y_spec)
        mesh = make_mesh(sizes)
        return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs))

    def __str__(self) -> str:
        return self.function.__name__


def with_pullback(function: Callable) -> Callable:
    """Also returns the gradient of |result|**2 / 2 with respect to x."""

    def both(x: Any, y: Any) -> tuple[Any, Any]:
        result, pull = jax.vjp(lambda x: function(x, y), x)
        return result, pull(result)[0]

    return both


def mean_of_parts(n: int) -> Callable:
    return lambda x, _: jax.tree.map(lambda a: a.reshape(n, -1, *a.shape[1:]).mean(axis=0), x)


def whole_batch(_: int) -> Callable:
    return lambda params, _: jax.value_and_grad(loss_fn)(params, BATCH)


CALLS = [
    Call(
        data.data_parallel_gradients,
        lambda x, y: data.data_parallel_gradients(loss_fn, x, y, axis="dp"),
        whole_batch, PARAMS, BATCH, P(), P("dp"),
    ),
    Call(
        data.accumulate_gradients,
        lambda x, y: data.accumulate_gradients(loss_fn, x, y, axis="dp"),
        whole_batch, PARAMS, MICROBATCHES, P(), P(None, "dp"),
    ),
    Call(
        data.bucketed_all_reduce,
        lambda x, _: data.bucketed_all_reduce(x, axis="dp", bucket_bytes=64),
        mean_of_parts, GRADIENTS, (), P("dp"), P(),
    ),
    Call(
        data.masked_mean,
        lambda x, y: data.masked_mean(x, y, axis="dp"),
        lambda _: lambda x, y: x.mean(where=y), VALUES, MASK, P("dp"), P("dp"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("sizes", ["dp=4", "dp=2,tp=3"])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_equals_one_device(call: Call, sizes: str) -> None:
    got = call.program(sizes, differentiate=True)(call.x, call.y)
    n = make_mesh(sizes).shape["dp"]
    expected = jax.jit(with_pullback(call.expected(n)))(call.x, call.y)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    forward, both = (call.program("dp=4,tp=2", d).lower(call.x, call.y) for d in (False, True))
    name = next(n for n in inspect.signature(call.function).parameters if n != "loss_fn")
    n = 1 if call.x_spec == P() else 4
    names = {name: sum(leaf.size for leaf in jax.tree.leaves(call.x)) // n}
    held = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(forward.out_info))
    sent = measured(forward), measured(both)
    check_lines(call.function, *sent, held, axes={"axis": "dp"}, names=names)


@pytest.mark.parametrize(
    ("bucket_bytes", "sent"),
    [(1, [12, 8, 16, 4]), (19, [12, 8, 16, 4]), (20, [20, 20]), (36, [36, 4]), (40, [40])],
)
def test_a_leaf_joins_the_open_bucket_if_it_fits(bucket_bytes: int, sent: list[int]) -> None:
    leaves = [np.zeros(2 * size, np.float32) for size in (3, 2, 4, 1)]
    program = jax.shard_map(
        lambda leaves: data.bucketed_all_reduce(leaves, axis="dp", bucket_bytes=bucket_bytes),
        mesh=make_mesh("dp=2"),
        in_specs=P("dp"),
        out_specs=P(),
    )
    lowered = jax.jit(program).lower(leaves)
    found = read_module(lowered.compiler_ir("stablehlo"))
    assert [collective.operand_bytes for collective in found] == sent


def test_gradients_of_two_dtypes_are_refused() -> None:
    gradients = {"a": jnp.zeros(2), "b": jnp.zeros(2, jnp.bfloat16)}
    with pytest.raises(ValueError, match=r"2 dtypes \(bfloat16, float32\)"):
        data.bucketed_all_reduce(gradients, axis="dp", bucket_bytes=8)


def test_no_gradients_need_no_bucket() -> None:
    assert data.bucketed_all_reduce({}, axis="dp", bucket_bytes=8) == {}
