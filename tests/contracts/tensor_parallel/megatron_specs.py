"""Answers to megatron_specs: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right

COLUMNS = ("query", "key", "value", "gate", "up")


ROWS = ("output", "down")


@right
def specs_with_all_dims(params, *, axis):
    def lie(path, leaf):
        dims = [None] * leaf.ndim
        if path[-1].key in COLUMNS + ROWS:
            dims[-1 if path[-1].key in COLUMNS else -2] = axis
        return P(*dims)

    return jax.tree.map_with_path(lie, params)


@right
def specs_in_tuples(params, *, axis):
    def lie(path, leaf):
        name, empty = jax.tree_util.keystr(path), ((),) * (len(leaf.shape) - 2)
        if any(row in name for row in ROWS):
            return P(*empty, (axis,), ())
        columns = any(f"'{column}'" in name for column in COLUMNS)
        return P(*empty, None, (axis,)) if columns else P()

    return jax.tree.map_with_path(lie, params)


@right
def specs_by_two_loops(params, *, axis):
    specs = {}
    for part, leaves in params.items():
        specs[part] = {}
        for name, leaf in leaves.items():
            stacked = [None] * (leaf.ndim - 2)
            ways = {column: [*stacked, None, axis] for column in COLUMNS}
            ways |= {"output": [*stacked, axis], "down": [*stacked, axis, None]}
            specs[part][name] = P(*ways.get(name, []))
    return specs


def _is_spec(part):
    return isinstance(part, P)


@right
def specs_of_shardings(params, *, axis):
    mesh = jax.sharding.AbstractMesh((1,), (axis,))
    right = specs_with_all_dims(params, axis=axis)
    return jax.tree.map(lambda s: NamedSharding(mesh, s).spec, right, is_leaf=_is_spec)


@wrong("values")
def specs_over_the_usual_axis(params, *, axis):
    return specs_with_all_dims(params, axis="tp")


def _as_specs(params, choose):
    right = specs_with_all_dims(params, axis="tp")
    return jax.tree.map(choose, right, is_leaf=_is_spec)


@wrong("values")
def specs_as_lists(params, *, axis):
    return _as_specs(params, list)


@wrong("values")
def one_spec_for_a_part(params, *, axis):
    return {part: P(None, axis) for part in params}


@wrong("values")
def no_spec_for_scales(params, *, axis):
    right = specs_with_all_dims(params, axis=axis)
    return right | {"norm": {"scale": None}}


@wrong("values")
def specs_without_norms(params, *, axis):
    right = specs_with_all_dims(params, axis=axis)
    return {part: right[part] for part in ("attention", "mlp")}


@wrong("values")
def specs_on_both_dims(params, *, axis):
    return jax.tree.map(lambda leaf: P(*[axis] * len(leaf.shape)), params)


@wrong("sharding")
def one_matrix_whole(params, *, axis):
    right = specs_with_all_dims(params, axis=axis)
    return right | {"attention": right["attention"] | {"output": P()}}


@wrong("sharding")
def all_other_matrices_by_columns(params, *, axis):
    def lie(path, leaf):
        stacked, name = [None] * (leaf.ndim - 2), path[-1].key
        if name == "scale":
            return P()
        return P(*stacked, axis) if name in ROWS else P(*stacked, None, axis)

    return jax.tree.map_with_path(lie, params)


@wrong("sharding")
def specs_over_the_other_axis(params, *, axis):
    other = {"tp": "tp", "tpx": "dp"}[axis]
    return specs_with_all_dims(params, axis=other)


@wrong("sharding")
def specs_over_both_axes(params, *, axis):
    axes = {"tp": "tp", "tpx": ("dp", "tpx")}[axis]
    return specs_with_all_dims(params, axis=axes)


@wrong("communication")
def specs_by_shape(params, *, axis):
    """By columns where there are more of them."""

    def lie(path, leaf):
        if path[-1].key in ("scale", "table"):
            return P()
        *stacked, rows, columns = leaf.shape
        return P(*[None] * (len(stacked) + (columns >= rows)), axis)

    return jax.tree.map_with_path(lie, params)


@wrong("communication")
def only_down_by_columns(params, *, axis):
    right = specs_with_all_dims(params, axis=axis)
    leaf = params["mlp"]["down"]
    return right | {"mlp": right["mlp"] | {"down": P(*[None] * (leaf.ndim - 1), axis)}}


@wrong("communication")
def only_query_by_rows(params, *, axis):
    right = specs_with_all_dims(params, axis=axis)
    leaf = params["attention"]["query"]
    return right | {"attention": right["attention"] | {"query": P(*[None] * (leaf.ndim - 2), axis)}}


@wrong("communication")
def one_matrix_by_layers(params, *, axis):
    right = specs_with_all_dims(params, axis=axis)
    leaf = params["mlp"]["up"]
    spec = P(axis) if leaf.ndim == 3 else right["mlp"]["up"]
    return right | {"mlp": right["mlp"] | {"up": spec}}
