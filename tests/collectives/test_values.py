"""Every public collective gives what one device computes from the x of all, with its gradient."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxpar import collectives
from jaxpar.mesh import make_mesh, varying_axes
from tests.arrays import random
from tests.collectives.calls import BITS, ROOT, SHIFT, Call, calls, on_devices
from tests.comm_lines import comm

REDUCTIONS = {
    "sum": jnp.sum, "prod": jnp.prod, "min": jnp.min, "max": jnp.max,
    "and": jnp.bitwise_and.reduce, "or": jnp.bitwise_or.reduce, "xor": jnp.bitwise_xor.reduce,
}  # fmt: skip


def to_all(y: Array, n: int) -> Array:
    return jnp.broadcast_to(y, (n, *y.shape))


def to_root(y: Array, n: int) -> Array:
    return jnp.zeros((n, *y.shape), y.dtype).at[ROOT].set(y)


def reduced(x: Array, op: str | None) -> Array:
    return REDUCTIONS[op or "sum"](x, axis=0)


def with_ranks(x: Array, op: None) -> Array:
    return x + jnp.arange(len(x), dtype=x.dtype).reshape(-1, *[1] * (x.ndim - 1))


def max_with_location(x: Array, op: None) -> tuple[Array, Array]:
    return to_all(x.max(axis=0), len(x)), to_all(x.argmax(axis=0), len(x))


def min_with_location(x: Array, op: None) -> tuple[Array, Array]:
    return to_all(x.min(axis=0), len(x)), to_all(x.argmin(axis=0), len(x))


def swapped(x: Array) -> Array:
    """The blocks of an array with the axes swapped; its own block (i, j) is x[i, j]."""
    rows, columns, b, d = x.shape
    array = x.swapaxes(1, 2).reshape(rows * b, columns * d)
    blocks = array.reshape(columns, rows * b // columns, rows, columns * d // rows)
    return blocks.transpose(2, 0, 1, 3)


# By name without the algorithm (ring, tree, ...): the results of devices that hold x [n, ...].
ORACLES: dict[str, Callable[[Array, Any], Any]] = {
    "add_rank": with_ranks,
    "broadcast": lambda x, op: to_all(x[ROOT], len(x)),
    "scatter": lambda x, op: x[ROOT],
    "gather": lambda x, op: to_root(x, len(x)),
    "all_gather": lambda x, op: to_all(x, len(x)),
    "all_to_all": lambda x, op: x.swapaxes(0, 1),
    "permute": lambda x, op: jnp.roll(x, SHIFT, axis=0),
    "reduce": lambda x, op: to_root(reduced(x, op), len(x)),
    "all_reduce": lambda x, op: to_all(reduced(x, op), len(x)),
    "reduce_scatter": reduced,
    "mean_over_devices": lambda x, op: to_all(x.mean(axis=0), len(x)),
    "reduce_max_location": max_with_location,
    "reduce_min_location": min_with_location,
}
WAYS = ("two_way_ring_", "ring_", "tree_", "recursive_doubling_", "hierarchical_")


def oracle(call: Call) -> Callable[[Array], Any]:
    """The collective on one device: x has a dim for each mesh axis, and the last is the group."""
    if call.function.__name__ == "swap_layout":
        return swapped
    name = call.function.__name__.removesuffix("_by_permutes")
    for way in WAYS:
        name = name.removeprefix(way)
    in_group = lambda x: ORACLES[name](x, call.op)  # noqa: E731
    if "outer" not in call.groups:
        return jax.vmap(in_group)

    def over_both_axes(x: Array) -> Array:
        y = in_group(x.reshape(call.mesh.size, *call.shape))
        return y.reshape(*call.mesh.axis_sizes, *y.shape[1:])

    return over_both_axes


def values(function: Callable[[Array], Any], x: Any, sizes: str) -> Any:
    """What each device gets when device i of the mesh holds x[i]."""
    return jax.jit(on_devices(function, make_mesh(sizes)))(x)


@pytest.mark.parametrize("call", calls(), ids=str)
def test_values_and_gradient_equal_one_device(call: Call) -> None:
    shape = (*call.mesh.axis_sizes, *call.shape)
    if call.op in BITS:
        x = np.random.default_rng(0).integers(0, 256, shape, np.int32)
    elif "location" in call.function.__name__:
        x = random(*shape).round()  # which makes many ties
    else:
        x = random(*shape)

    def both(function: Callable[[Array], Any]) -> Any:
        if comm(call.function, "backward", call.op) is None:
            return function(x)
        y, pull = jax.vjp(function, x)
        return y, pull(1 + random(*y.shape))

    compare = jax.jit(lambda: (both(on_devices(call.per_device, call.mesh)), both(oracle(call))))
    for one, other in zip(*map(jax.tree.leaves, compare()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("call", calls(), ids=str)
def test_dtype_is_kept_and_x_may_be_typed_as_equal_on_every_device(call: Call) -> None:
    dtype = jnp.uint8 if call.op in BITS else jnp.bfloat16

    def on_one_device(x: Array) -> Any:
        return jax.tree.map(lambda y: y[None], call.per_device(x))

    out_specs = jax.P(call.mesh.axis_names)
    function = jax.shard_map(on_one_device, mesh=call.mesh, in_specs=jax.P(), out_specs=out_specs)
    y = jax.eval_shape(function, jax.ShapeDtypeStruct(call.shape, dtype))
    y, *place = jax.tree.leaves(y)
    assert y.dtype == dtype
    assert [index.dtype for index in place] == [jnp.int32] * len(place)


def test_bits_of_booleans() -> None:
    x = np.random.default_rng(0).integers(0, 2, (5, 3)).astype(bool)
    for op in BITS:
        y = values(lambda x, op=op: collectives.all_reduce(x, axis="device", op=op), x, "device=5")
        assert y.dtype == bool
        np.testing.assert_array_equal(y, to_all(reduced(jnp.asarray(x), op), 5))


def test_results_equal_everywhere_are_typed_so() -> None:
    def types(x: Array) -> Array:
        for y in (
            collectives.broadcast(x, axis="device", root=0),
            collectives.all_reduce(x, axis="device"),
            collectives.all_reduce(x, axis="device", op="max"),
            collectives.all_reduce(x, axis="device", op="prod"),
            collectives.mean_over_devices(x, axis="device"),
            *collectives.reduce_min_location(x, axis="device"),
        ):
            assert varying_axes(y) == {"node"}
        both = collectives.hierarchical_all_reduce(x, inner="device", outer="node")
        assert varying_axes(both) == set()
        return x

    jax.eval_shape(on_devices(types, make_mesh("node=2,device=4")), random(2, 4, 3))


def test_two_axes_are_one_group() -> None:
    x = random(2, 3, 4)

    def over_both(x: Array) -> tuple[Array, ...]:
        axis = ("node", "device")
        return (
            collectives.all_gather(x, axis=axis),
            collectives.permute(x, axis=axis, shift=1),
            collectives.all_reduce(x, axis=axis, op="prod"),
        )

    gathered, sent, product = values(over_both, x, "node=2,device=3")
    np.testing.assert_array_equal(gathered[1, 2], x.reshape(6, 4))
    np.testing.assert_array_equal(sent[1, 0], x[0, 2])
    np.testing.assert_allclose(product[1, 1], x.prod((0, 1)), rtol=1e-5)


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


@pytest.mark.parametrize("n", [1, 2])
def test_the_smallest_rings(n: int) -> None:
    x = random(n, n, 3)

    def every(x: Array) -> tuple[Array, ...]:
        return (
            collectives.ring_all_gather(x, axis="device"),
            collectives.two_way_ring_all_gather(x, axis="device"),
            collectives.ring_reduce_scatter(x, axis="device"),
            collectives.ring_all_reduce(x, axis="device"),
        )

    gathered, two_way, scattered, total = values(every, x, f"device={n}")
    np.testing.assert_array_equal(gathered, to_all(x, n))
    np.testing.assert_array_equal(two_way, gathered)
    np.testing.assert_allclose(scattered, x.sum(0), rtol=1e-6)
    np.testing.assert_allclose(total, to_all(x.sum(0), n), rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
def test_every_root_of_every_tree(n: int) -> None:
    x = random(n, 2)

    def every(x: Array) -> list[tuple[Array, Array]]:
        return [
            (
                collectives.tree_broadcast(x, axis="device", root=root),
                collectives.tree_reduce(x, axis="device", root=root),
            )
            for root in range(n)
        ]

    for root, (copied, total) in enumerate(values(every, x, f"device={n}")):
        np.testing.assert_array_equal(copied, to_all(x[root], n))
        np.testing.assert_allclose(total[root], x.sum(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(np.delete(total, root, axis=0), 0)
