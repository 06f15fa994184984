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


@right
def split_by_path(params, *, mesh, axis, minimum_size):
    def choose(path, leaf):
        dims = _dims(leaf, int(path[0].key == "layers"), mesh.shape[axis])
        return _spec(leaf, dims[0], axis) if leaf.size >= minimum_size else P()

    return jax.tree_util.tree_map_with_path(choose, params)


@right
def split_by_leaves(params, *, mesh, axis, minimum_size):
    layers = {id(leaf) for leaf in jax.tree.leaves(params["layers"])}
    leaves, structure = jax.tree.flatten(params)
    specs = []
    for leaf in leaves:
        dims = _dims(leaf, int(id(leaf) in layers), mesh.shape[axis])
        small = leaf.size < minimum_size
        smallest = min(dims, key=lambda dim, leaf=leaf: leaf.shape[dim], default=0)
        specs.append(P() if small else _spec(leaf, smallest, axis))
    return structure.unflatten(specs)


@wrong("values")
def specs_by_names_in_the_stub(params, *, mesh, axis, minimum_size):
    by_name = {
        "embedding": P(None, axis),
        "up": P(None, axis),
        "down": P(None, None, axis),
        "head": P(axis),
    }
    if axis == "dp":
        by_name |= {"embedding": P(axis), "scale": P(None, axis)}
        by_name |= {"up": P(None, axis), "down": P(None, axis)}

    def choose(path, leaf):
        return by_name.get(path[-1].key, P())

    return jax.tree_util.tree_map_with_path(choose, params)


@wrong("values")
def specs_of_two_levels(params, *, mesh, axis, minimum_size):
    def choose(leaf, first):
        dims = _dims(leaf, first, mesh.shape[axis])
        return _spec(leaf, dims[0], axis) if leaf.size >= minimum_size else P()

    layers = {name: choose(leaf, 1) for name, leaf in params["layers"].items()}
    rest = {name: choose(leaf, 0) for name, leaf in params.items() if name != "layers"}
    return rest | {"layers": layers}


@wrong("sharding")
def split_within_three_dims(params, *, mesh, axis, minimum_size):
    """No dim after the third is looked at."""

    def choose(leaf, first):
        dims = [dim for dim in _dims(leaf, first, mesh.shape[axis]) if dim < 3]
        return _spec(leaf, dims[0], axis) if leaf.size >= minimum_size and dims else P()

    return specs_by_leaf(params, choose)


@wrong("sharding")
def minimum_of_float32(params, *, mesh, axis, minimum_size):
    def choose(leaf, first):
        dims = _dims(leaf, first, mesh.shape[axis])
        large = leaf.size * leaf.dtype.itemsize >= 4 * minimum_size
        return _spec(leaf, dims[0], axis) if large and dims else P()

    return specs_by_leaf(params, choose)


@wrong("values")
def split_by_last_axis_size(params, *, mesh, axis, minimum_size):
    """The axis is the last of the mesh in the stub."""
    n = list(mesh.shape.values())[-1]

    def choose(leaf, first):
        dims = _dims(leaf, first, n)
        return _spec(leaf, dims[0], axis) if leaf.size >= minimum_size and dims else P()

    return specs_by_leaf(params, choose)


@wrong("memory")
def stacked_if_of_three_dims(params, *, mesh, axis, minimum_size):
    def choose(leaf):
        dims = _dims(leaf, int(leaf.ndim == 3), mesh.shape[axis])
        return _spec(leaf, dims[0], axis) if leaf.size >= minimum_size else P()

    return jax.tree.map(choose, params)


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
    if "up" in right["layers"]:
        right["layers"]["up"] = P(axis)
    return right


@wrong("values")
def large_leaf_over_copies(params, *, mesh, axis, minimum_size):
    right = split_by_largest_dim(params, mesh=mesh, axis=axis, minimum_size=minimum_size)
    return right | {"embedding": P(mesh.axis_names[0])}
