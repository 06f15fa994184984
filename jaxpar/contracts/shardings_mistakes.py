"""Wrong shardings for the compiler that people write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.base import Mistake

Params = dict[str, Any]


def _each(params: Params, lie: Callable[[Any, int], P]) -> Params:
    """The spec of each leaf, by the leaf and the number of its dims that no device may share."""
    return {
        name: jax.tree.map(lambda leaf, first=int(name == "layers"): lie(leaf, first), part)
        for name, part in params.items()
    }


def _on(leaf: Any, n: int, axis: Any, dims: range | None = None) -> P:
    """A spec with the axis on the first of these dims that n divides."""
    for dim in range(len(leaf.shape)) if dims is None else dims:
        if leaf.shape[dim] % n == 0:
            return P(*[None] * dim, axis)
    return P()


def _own(leaf: Any, first: int) -> range:
    return range(first, len(leaf.shape))


def _everything_replicated(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    return _each(params, lambda leaf, first: P())


def _layers_shared(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
    def lie(leaf: Any, first: int) -> P:
        return P() if leaf.size < minimum_size else _on(leaf, mesh.shape[axis], axis)

    return _each(params, lie)


def _small_leaves_shared(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    n = mesh.shape[axis]
    return _each(params, lambda leaf, first: _on(leaf, n, axis, _own(leaf, first)))


def _above(compare: Callable[[Any, int, int], bool]) -> Callable[..., Params]:
    """Shares the leaves for which `compare(leaf, first, minimum_size)` holds."""

    def function(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
        def lie(leaf: Any, first: int) -> P:
            large = compare(leaf, first, minimum_size)
            return _on(leaf, mesh.shape[axis], axis, _own(leaf, first)) if large else P()

        return _each(params, lie)

    return function


def _only_largest_leaf(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    largest = max(leaf.size for leaf in jax.tree.leaves(params))
    return _above(lambda leaf, *_: leaf.size == largest)(
        params, mesh=mesh, axis=axis, minimum_size=minimum_size
    )


def _dim_always(choose: Callable[[tuple[int, ...]], int]) -> Callable[..., Params]:
    """Shares the dim that `choose` takes from a shape, whether or not n divides it."""

    def function(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
        def lie(leaf: Any, first: int) -> P:
            dim = first + choose(leaf.shape[first:])
            return P() if leaf.size < minimum_size else P(*[None] * dim, axis)

        return _each(params, lie)

    return function


def _over_all_axes(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
    def lie(leaf: Any, first: int) -> P:
        axes = tuple(mesh.shape)
        return P() if leaf.size < minimum_size else _on(leaf, mesh.size, axes, _own(leaf, first))

    return _each(params, lie)


def _n_of_all_devices(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    def lie(leaf: Any, first: int) -> P:
        return P() if leaf.size < minimum_size else _on(leaf, mesh.size, axis, _own(leaf, first))

    return _each(params, lie)


def _one_layer_is_large(leaf: Any, first: int, minimum_size: int) -> bool:
    return math.prod(leaf.shape[first:]) >= minimum_size


FSDP_SHARDINGS = (
    Mistake("first_dim_always", _dim_always(lambda shape: 0), "values"),
    Mistake("last_dim_always", _dim_always(lambda shape: len(shape) - 1), "values"),
    Mistake("largest_dim_always", _dim_always(lambda shape: shape.index(max(shape))), "values"),
    Mistake("everything_replicated", _everything_replicated, "sharding"),
    Mistake("only_largest_leaf", _only_largest_leaf, "sharding"),
    Mistake("small_leaves_shared", _small_leaves_shared, "sharding"),
    Mistake("minimum_of_bytes", _above(lambda leaf, _, least: 4 * leaf.size >= least), "sharding"),
    Mistake("minimum_of_one_layer", _above(_one_layer_is_large), "sharding"),
    Mistake("minimum_stays_whole", _above(lambda leaf, _, least: leaf.size > least), "sharding"),
    Mistake("n_of_all_devices", _n_of_all_devices, "sharding"),
    Mistake("over_all_axes", _over_all_axes, "sharding"),
    Mistake("layers_shared", _layers_shared, "memory"),
)
