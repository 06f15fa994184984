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
        name, empty = jax.tree_util.keystr(path[-1:]), ((),) * (len(leaf.shape) - 2)
        if any(f"'{row}'" in name for row in ROWS):
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


@right
def specs_by_recursion(params, *, axis):
    def of(name, part):
        if isinstance(part, dict):
            return {name: of(name, value) for name, value in part.items()}
        dims = {**dict.fromkeys(COLUMNS, -1), **dict.fromkeys(ROWS, -2)}
        return P(*[None] * (part.ndim + dims[name]), axis) if name in dims else P()

    return of("", params)


@right
def specs_of_two_flat_lists(params, *, axis):
    leaves, tree = jax.tree.flatten(params)
    names = [path[-1].key for path, _ in jax.tree.leaves_with_path(params)]
    specs = []
    for name, leaf in zip(names, leaves, strict=True):
        after = [None] * (name in ROWS)
        split = [None] * (leaf.ndim - 1 - len(after)) + [axis] + after
        specs.append(P(*split) if name in COLUMNS + ROWS else P())
    return jax.tree.unflatten(tree, specs)


@wrong("values")
def specs_of_two_levels(params, *, axis):
    def of(name, leaf):
        if name in COLUMNS:
            return P(*[None] * (leaf.ndim - 1), axis)
        return P(*[None] * (leaf.ndim - 2), axis) if name in ROWS else P()

    return {p: {name: of(name, leaf) for name, leaf in params[p].items()} for p in params}


@wrong("sharding")
def specs_by_second_name(params, *, axis):
    def spec(path, leaf):
        name = path[1].key
        if name in COLUMNS:
            return P(*[None] * (leaf.ndim - 1), axis)
        if name in ROWS:
            return P(*[None] * (leaf.ndim - 2), axis)
        return P()

    return jax.tree.map_with_path(spec, params)


@wrong("sharding")
def specs_by_name_anywhere_in_path(params, *, axis):
    def spec(path, leaf):
        names = [part.key for part in path]
        if leaf.ndim < 2:
            return P()
        if any(name in COLUMNS for name in names):
            return P(*[None] * (leaf.ndim - 1), axis)
        rows = any(name in ROWS for name in names)
        return P(*[None] * (leaf.ndim - 2), axis) if rows else P()

    return jax.tree.map_with_path(spec, params)


@wrong("sharding")
def specs_by_end_of_name(params, *, axis):
    def spec(path, leaf):
        name = path[-1].key
        if leaf.ndim > 1 and name.endswith(COLUMNS):
            return P(*[None] * (leaf.ndim - 1), axis)
        return P(*[None] * (leaf.ndim - 2), axis) if name.endswith(ROWS) else P()

    return jax.tree.map_with_path(spec, params)


@wrong("sharding")
def specs_by_names_of_other_leaves(params, *, axis):
    """What is no matrix is known by name, and all else is split."""

    def spec(path, leaf):
        name = path[-1].key
        if name in ("scale", "bias", "table", "position"):
            return P()
        return P(*[None] * (leaf.ndim - 1 - (name in ROWS)), axis)

    return jax.tree.map_with_path(spec, params)


@wrong("communication")
def specs_by_the_dim_that_is_not_d(params, *, axis):
    """Right where matrices are not square: the dim that x does not have is split."""
    shapes = [leaf.shape for path, leaf in jax.tree.leaves_with_path(params)
              if path[-1].key == "scale"]  # fmt: skip
    d = shapes[0][-1]

    def spec(path, leaf):
        if path[-1].key not in COLUMNS + ROWS:
            return P()
        split = leaf.ndim - 1 if leaf.shape[-1] != d else leaf.ndim - 2
        return P(*[None] * split, axis)

    return jax.tree.map_with_path(spec, params)


@wrong("communication")
def specs_of_at_most_four_layers(params, *, axis):
    """A first dim of more than four is not taken for layers."""

    def spec(path, leaf):
        first = leaf.ndim - 2 if leaf.shape[0] <= 4 or leaf.ndim == 2 else 0
        if path[-1].key in COLUMNS:
            return P(*[None] * (first + 1), axis)
        return P(*[None] * first, axis) if path[-1].key in ROWS else P()

    return jax.tree.map_with_path(spec, params)


@wrong("sharding")
def specs_of_known_parts(params, *, axis):
    def spec(path, leaf):
        if path[0].key not in ("attention", "mlp"):
            return P()
        if path[-1].key in COLUMNS:
            return P(*[None] * (leaf.ndim - 1), axis)
        return P(*[None] * (leaf.ndim - 2), axis)

    return jax.tree.map_with_path(spec, params)
