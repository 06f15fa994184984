"""Sharded pytrees: gathering undoes sharding, padding never shows, and costs are as stated."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.collectives import shards
from jaxpar.mesh import make_mesh, varying_axes
from tests.arrays import random
from tests.parallel.calls import Call, assert_docstring_holds

P = jax.P
MESHES = ("dp=4", "dp=3,tp=2")
AXIS = "dp"


# Dims that are divisible by 3, by 4, by both, by neither; first or last; of one element; empty.
TREE = {
    "both": random(12, 5),
    "second": [random(5, 12), random(2, 8, 3)],
    "neither": (random(5), random(7, 11), random(1)),
    "scalar": random(),
    "empty": random(0, 3),
}
TREE = jax.tree.map(jnp.asarray, TREE)
EVEN = {"a": random(48, 5), "b": [random(96), random(48, 2, 2)]}


def on_devices(function: Callable, sizes: str, takes: Any, gives: Any) -> Callable:
    mesh = make_mesh(sizes)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives))


def number(sizes: str) -> int:
    return make_mesh(sizes).shape[AXIS]


def specs(like: Any, sizes: str) -> Any:
    return shards.shard_specs(like, axis=AXIS, n=number(sizes))


def assert_equal(got: Any, expected: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "n", "dim"),
    [
        ((), 4, None),
        ((0, 3), 4, None),
        ((3, 0), 3, None),
        ((8, 12), 4, 0),
        ((6, 12), 4, 1),
        ((6, 7), 4, 1),
        ((7, 6), 4, 0),
        ((5, 5), 4, 0),
        ((1,), 4, 0),
        ((3, 5), 1, 0),
    ],
)
def test_the_first_dim_that_divides_else_the_largest(shape: tuple, n: int, dim: int | None) -> None:
    assert shards.split_dim(shape, n) == dim


@pytest.mark.parametrize("n", [1, 3, 4])
def test_padding_changes_neither_the_dim_nor_what_is_there(n: int) -> None:
    padded = shards.pad_shards(TREE, n=n)
    for leaf, before in zip(jax.tree.leaves(padded), jax.tree.leaves(TREE), strict=True):
        dim = shards.split_dim(leaf.shape, n)
        assert dim == shards.split_dim(before.shape, n)
        assert dim is None or (leaf.shape[dim] % n == 0 and leaf.shape[dim] < before.shape[dim] + n)
        np.testing.assert_array_equal(leaf[tuple(map(slice, before.shape))], before)
        assert np.count_nonzero(leaf) == np.count_nonzero(before)


@pytest.mark.parametrize("to", ["varying", "invarying"])
@pytest.mark.parametrize("sizes", MESHES)
def test_what_is_cut_can_be_put_together(sizes: str, to: Any) -> None:
    """Each device's shard is that of the padded leaf, by the specs of `shard_specs`."""
    tree_specs = specs(TREE, sizes)
    own = on_devices(partial(shards.own_shards, axis=AXIS), sizes, P(), tree_specs)
    parts = own(TREE)
    assert_equal(parts, shards.pad_shards(TREE, n=number(sizes)))

    def join(parts: Any) -> Any:
        whole = shards.gather_shards(parts, TREE, axis=AXIS, to=to)
        kept = (leaf for leaf in jax.tree.leaves(whole) if leaf.size > 1)
        assert all((AXIS in varying_axes(leaf)) == (to == "varying") for leaf in kept)
        return jax.tree.map(lambda leaf: jax.lax.pmean(leaf, AXIS), whole)

    assert_equal(on_devices(join, sizes, (tree_specs,), P())(parts), TREE)


@pytest.mark.parametrize("sizes", MESHES)
@pytest.mark.parametrize("of", ["sum", "mean"])
def test_sums_and_means_are_those_of_one_device(of: str, sizes: str) -> None:
    n = number(sizes)
    each = jax.tree.map(lambda leaf: random(n, *leaf.shape), TREE)

    def reduce(each: Any) -> Any:
        function = getattr(shards, f"{of}_shards")
        return function(jax.tree.map(lambda leaf: leaf[0], each), axis=AXIS)

    got = on_devices(reduce, sizes, P(AXIS), specs(TREE, sizes))(each)
    expected = jax.tree.map(lambda leaf: getattr(jnp, of)(leaf, axis=0), each)
    assert_equal(got, shards.pad_shards(expected, n=n))


@pytest.mark.parametrize("sizes", MESHES)
def test_the_derivative_of_a_gather_is_the_sum_of_what_all_ask_for(sizes: str) -> None:
    n, tree_specs = number(sizes), specs(TREE, sizes)
    asked = jax.tree.map(lambda leaf: random(n, *leaf.shape), TREE)

    def derivative(parts: Any, asked: Any) -> Any:
        def objective(parts: Any) -> jax.Array:
            whole = shards.gather_shards(parts, TREE, axis=AXIS)
            products = jax.tree.map(lambda a, b: jnp.sum(a * b[0]), whole, asked)
            return sum(jax.tree.leaves(products))

        return jax.grad(objective)(parts)

    parts = shards.pad_shards(TREE, n=n)
    got = on_devices(derivative, sizes, (tree_specs, P(AXIS)), tree_specs)(parts, asked)
    expected = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), asked)
    assert_equal(got, shards.pad_shards(expected, n=n))


def test_gather_takes_shapes_in_place_of_arrays_and_keeps_the_dtype() -> None:
    tree = {"a": jnp.arange(5, dtype=jnp.bfloat16)}
    like = jax.eval_shape(lambda: tree)

    def there_and_back(tree: Any) -> Any:
        parts = shards.mean_shards(jax.lax.pcast(tree, AXIS, to="varying"), axis=AXIS)
        return shards.gather_shards(parts, like, axis=AXIS, to="invarying")

    assert_equal(on_devices(there_and_back, "dp=2", P(), P())(tree), tree)


def gather(tree: Any) -> Any:
    like = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((4 * len(leaf), *leaf.shape[1:]), leaf), tree
    )
    return shards.gather_shards(tree, like, axis=AXIS)


@pytest.mark.parametrize(
    ("function", "per_device"),
    [
        (shards.own_shards, partial(shards.own_shards, axis=AXIS)),
        (shards.sum_shards, partial(shards.sum_shards, axis=AXIS)),
        (shards.mean_shards, partial(shards.mean_shards, axis=AXIS)),
        (shards.gather_shards, gather),
    ],
)
def test_it_sends_and_holds_what_it_says(function: Callable, per_device: Callable) -> None:
    names = {"shards": sum(leaf.size for leaf in jax.tree.leaves(EVEN)) // 4}
    call = Call(function, per_device, (EVEN,), (P(AXIS),), P(AXIS), names=names)
    assert_docstring_holds(call, "dp=4,tp=2", axis=AXIS)
