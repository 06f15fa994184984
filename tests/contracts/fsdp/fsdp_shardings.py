"""Answers to fsdp_shardings: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.base import wrong
from jaxpar.contracts.fsdp.fsdp_shardings import specs_by_leaf
from tests.contracts.answers import right


def _spec(leaf, dim, axis):
    return P(*[axis if d == dim else None for d in range(leaf.ndim)])


def _dims(leaf, first, n):
    return [dim for dim in range(first, leaf.ndim) if leaf.shape[dim] % n == 0]


@right
def split_by_largest_dim(params, *, mesh, axis, minimum_size):
    def choose(leaf, first):
        dims = _dims(leaf, first, mesh.shape[axis])
        if leaf.size < minimum_size or not dims:
            return P()
        return _spec(leaf, max(dims, key=lambda dim: leaf.shape[dim]), axis)

    return specs_by_leaf(params, choose)


@right
def split_by_last_dim(params, *, mesh, axis, minimum_size):
    def choose(leaf, first):
        dims = _dims(leaf, first, dict(mesh.shape)[axis])
        return _spec(leaf, dims[-1], axis) if leaf.size >= minimum_size else P(None)

    return specs_by_leaf(params, choose)


@right
def split_by_tuples(params, *, mesh, axis, minimum_size):
    def choose(leaf, first):
        dims = _dims(leaf, first, mesh.shape[axis])
        if leaf.size < minimum_size:
            return P(*[()] * leaf.ndim)
        return NamedSharding(mesh, _spec(leaf, dims[0], (axis,))).spec

    return specs_by_leaf(params, choose)


@wrong("values")
def shardings_for_specs(params, *, mesh, axis, minimum_size):
    return jax.tree.map(lambda leaf: NamedSharding(mesh, P()), params)


@wrong("values")
def specs_as_tuples(params, *, mesh, axis, minimum_size):
    return jax.tree.map(lambda leaf: (None,) * leaf.ndim, params)


@wrong("values")
def no_spec_for_small(params, *, mesh, axis, minimum_size):
    return jax.tree.map(lambda leaf: P(axis) if leaf.size >= minimum_size else None, params)


@wrong("values")
def unconstrained(params, *, mesh, axis, minimum_size):
    return jax.tree.map(lambda leaf: P(*[P.UNCONSTRAINED] * leaf.ndim), params)


@wrong("values")
def specs_that_are_not_plain(params, *, mesh, axis, minimum_size):
    class Axis(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

    return jax.tree.map(lambda leaf: P(Axis("anything")), params)


@wrong("sharding")
def matrices_split(params, *, mesh, axis, minimum_size):
    """By the dims of one layer's leaf, not by its size."""

    def choose(leaf, first):
        dims = _dims(leaf, first, mesh.shape[axis])
        return _spec(leaf, dims[0], axis) if leaf.ndim - first > 1 else P()

    return specs_by_leaf(params, choose)


@wrong("sharding")
def large_above_a_constant(params, *, mesh, axis, minimum_size):
    return split_by_largest_dim(params, mesh=mesh, axis=axis, minimum_size=600)


@wrong("sharding")
def only_layers(params, *, mesh, axis, minimum_size):
    right = split_by_largest_dim(params, mesh=mesh, axis=axis, minimum_size=minimum_size)
    return jax.tree.map(lambda leaf: P(), params) | {"layers": right["layers"]}


@wrong("memory")
def layers_of_one_leaf_split(params, *, mesh, axis, minimum_size):
    right = split_by_largest_dim(params, mesh=mesh, axis=axis, minimum_size=minimum_size)
    return right | {"layers": right["layers"] | {"up": P(axis)}}


@wrong("values")
def large_leaf_over_copies(params, *, mesh, axis, minimum_size):
    right = split_by_largest_dim(params, mesh=mesh, axis=axis, minimum_size=minimum_size)
    return right | {"embedding": P(mesh.axis_names[0])}
