"""Answers to megatron_specs: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right

COLUMNS = ("query", "key", "value", "gate", "up")
ROWS = ("output", "down")


@right
def specs_with_all_dims(params, *, axis):
    def spec(path, leaf):
        dims, name = [None] * leaf.ndim, path[-1].key
        if name in COLUMNS + ROWS:
            dims[-1 if name in COLUMNS else -2] = axis
        return P(*dims)

    return jax.tree.map_with_path(spec, params)


@right
def specs_in_tuples(params, *, axis):
    def spec(path, leaf):
        name, empty = jax.tree_util.keystr(path), ((),) * (len(leaf.shape) - 2)
        if any(row in name for row in ROWS):
            return P(*empty, (axis,), ())
        columns = any(f"'{column}'" in name for column in COLUMNS)
        return P(*empty, None, (axis,)) if columns else P()

    return jax.tree.map_with_path(spec, params)


def _with_one_changed(params, axis, part, name, spec):
    right = specs_with_all_dims(params, axis=axis)
    return right | {part: right[part] | {name: spec}}


@wrong("sharding")
def one_matrix_whole(params, *, axis):
    return _with_one_changed(params, axis, "attention", "output", P())


@wrong("sharding")
def all_other_matrices_by_columns(params, *, axis):
    def spec(path, leaf):
        stacked, name = [None] * (leaf.ndim - 2), path[-1].key
        if name == "scale":
            return P()
        return P(*stacked, axis) if name in ROWS else P(*stacked, None, axis)

    return jax.tree.map_with_path(spec, params)


@wrong("sharding")
def specs_over_the_other_axis(params, *, axis):
    other = {"tp": "tp", "tpx": "dp"}[axis]
    return specs_with_all_dims(params, axis=other)


@wrong("sharding")
def specs_over_both_axes(params, *, axis):
    axes = {"tp": "tp", "tpx": ("dp", "tpx")}[axis]
    return specs_with_all_dims(params, axis=axes)


@wrong("communication")
def only_down_by_columns(params, *, axis):
    columns = P(*[None] * (params["mlp"]["down"].ndim - 1), axis)
    return _with_one_changed(params, axis, "mlp", "down", columns)


@wrong("communication")
def only_query_by_rows(params, *, axis):
    rows = P(*[None] * (params["attention"]["query"].ndim - 2), axis)
    return _with_one_changed(params, axis, "attention", "query", rows)


@wrong("communication")
def one_matrix_by_layers(params, *, axis):
    stacked = params["mlp"]["up"].ndim == 3
    return _with_one_changed(params, axis, "mlp", "up", P(axis) if stacked else P(None, axis))
