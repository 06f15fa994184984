"""Answers to sharded_dim: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def dim_by_partition_specs(shape, splits, sizes, axes, *, stacked):
    """JAX refuses a layout whose axes do not divide, or split two dims."""
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    over = [axis for axis in axes if sizes[axis] != 1 and axis not in sum(splits, ())]
    for start, dim in product(range(len(over)), range(stacked, len(shape))):
        entries = [*splits]
        entries[dim] = (*entries[dim], *over[start:])
        try:
            local = NamedSharding(mesh, P(*entries)).shard_shape(shape)
        except ValueError:
            continue
        if local[dim]:
            return dim, tuple(over[start:])
    return None, ()


@right
def dim_by_recursion_as_list(shape, splits, sizes, axes, *, stacked):
    taken = set().union(*splits)
    over = [axis for axis in axes if sizes[axis] > 1 and axis not in taken]
    if not over:
        return [None, []]
    for dim, (size, split) in enumerate(zip(shape, splits, strict=True)):
        parts = math.prod(map(sizes.get, [*split, *over]))
        if size and size % parts == 0 and not (stacked and dim == 0):
            return [dim, over]
    return dim_by_recursion_as_list(shape, splits, sizes, over[1:], stacked=stacked)


@right
def dim_by_table(shape, splits, sizes, axes, *, stacked):
    """For every dim and every number of axes left out, whether they divide."""
    split = {axis for some in splits for axis in some}
    over = [axis for axis in axes if axis not in split and sizes[axis] > 1]
    n = np.cumprod([sizes[axis] for axis in over[::-1]], dtype=np.int64)[::-1]
    parts = [math.prod(sizes[axis] for axis in some) for some in splits]
    local = np.array(shape, np.int64) // np.array(parts, np.int64)
    local[:stacked] = 0
    table = (local[None] % n[:, None] == 0) & (local[None] > 0)
    if not table.any():
        return None, ()
    start, dim = (int(place) for place in np.argwhere(table)[0])
    return dim, tuple(over[start:])


@right
def dim_by_dividing_step_by_step(shape, splits, sizes, axes, *, stacked):
    """Divides by the innermost axis, then by the next one, as long as there is no rest."""
    axes = [axis for axis in axes if sizes[axis] > 1]
    axes = [axis for axis in axes if all(axis not in split for split in splits)]
    best = None, ()
    for dim in range(1 if stacked else 0, len(shape)):
        size, over = shape[dim], ()
        for axis in splits[dim]:
            size //= sizes[axis]
        for axis in reversed(axes):
            if not size or size % sizes[axis]:
                break
            size, over = size // sizes[axis], (axis, *over)
        if len(over) > len(best[1]):
            best = dim, over
    return best


def _searched(shape, splits, sizes, axes, stacked):
    return dim_by_dividing_step_by_step(shape, splits, sizes, axes, stacked=stacked)


@wrong("values")
def dim_where_jax_allows_it(shape, splits, sizes, axes, *, stacked):
    """JAX allows to split a dim without elements, and over one device."""
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    for start, dim in product(range(len(axes)), range(stacked, len(shape))):
        entries = [*splits]
        entries[dim] = (*entries[dim], *axes[start:])
        try:
            NamedSharding(mesh, P(*entries)).shard_shape(shape)
        except ValueError:
            continue
        return dim, axes[start:]
    return None, ()


@wrong("values")
def dim_alone(shape, splits, sizes, axes, *, stacked):
    return _searched(shape, splits, sizes, axes, stacked)[0]


@wrong("values")
def dim_or_minus_one(shape, splits, sizes, axes, *, stacked):
    dim, over = _searched(shape, splits, sizes, axes, stacked)
    return -1 if dim is None else dim, over


@wrong("values")
def dim_or_nothing(shape, splits, sizes, axes, *, stacked):
    dim, over = _searched(shape, splits, sizes, axes, stacked)
    return (dim, over) if dim else (None, ())


@wrong("values")
def dim_with_axes_that_split_it(shape, splits, sizes, axes, *, stacked):
    """All axes of the dim in the new layout."""
    dim, over = _searched(shape, splits, sizes, axes, stacked)
    return dim, over if dim is None else (*splits[dim], *over)


@wrong("values")
def dim_with_one_axis_as_text(shape, splits, sizes, axes, *, stacked):
    dim, over = _searched(shape, splits, sizes, axes, stacked)
    return dim, over[0] if len(over) == 1 else over


@wrong("values")
def dim_by_axes_in_order_of_the_mesh(shape, splits, sizes, axes, *, stacked):
    axes = tuple(axis for axis in sizes if axis in axes)
    return _searched(shape, splits, sizes, axes, stacked)


@wrong("values")
def dim_by_axes_in_usual_order(shape, splits, sizes, axes, *, stacked):
    usual = ("pp", "dp", "fsdp", "ep", "cp", "tp", "tpx", "tpy", "tpz", "node", "device")
    return _searched(shape, splits, sizes, sorted(axes, key=usual.index), stacked)


@wrong("values")
def dim_over_all_that_is_free(shape, splits, sizes, axes, *, stacked):
    """All axes of the mesh that split nothing."""
    return _searched(shape, splits, sizes, tuple(sizes), stacked)


@wrong("values")
def dim_over_usual_axes(shape, splits, sizes, axes, *, stacked):
    known = tuple(axis for axis in axes if axis in ("dp", "fsdp", "ep", "cp"))
    return _searched(shape, splits, sizes, known, stacked)


@wrong("values")
def dim_over_all_or_the_last(shape, splits, sizes, axes, *, stacked):
    """Two tries, where there may be more axes."""
    dim, over = _searched(shape, splits, sizes, axes, stacked)
    free = [axis for axis in axes if sizes[axis] > 1 and axis not in sum(splits, ())]
    if len(over) in (len(free), 1):
        return dim, over
    return _searched(shape, splits, sizes, free[-1:], stacked)


@wrong("values")
def dim_over_three_axes_at_most(shape, splits, sizes, axes, *, stacked):
    return _searched(shape, splits, sizes, axes[-3:], stacked)


@wrong("values")
def dim_of_the_first_four(shape, splits, sizes, axes, *, stacked):
    dim, over = _searched(shape[:4], splits[:4], sizes, axes, stacked)
    split = {axis for some in splits for axis in some}
    return (None, ()) if split & {*over} else (dim, over)


@wrong("values")
def dim_of_a_matrix(shape, splits, sizes, axes, *, stacked):
    """Vectors are small, and stay whole."""
    if len(shape) - stacked < 2:
        return None, ()
    return _searched(shape, splits, sizes, axes, stacked)


@wrong("values")
def dim_0_if_it_is_whole(shape, splits, sizes, axes, *, stacked):
    """Takes every leaf whose dim 0 pp splits for a stacked one."""
    return _searched(shape, splits, sizes, axes, bool(splits) and "pp" in splits[0])


@wrong("values")
def dim_of_three_dims_stacked(shape, splits, sizes, axes, *, stacked):
    return _searched(shape, splits, sizes, axes, len(shape) > 2)


@wrong("values")
def dim_that_leaves_more_than_one(shape, splits, sizes, axes, *, stacked):
    """Every device shall keep at least two elements of the dim."""
    dim, over = _searched(shape, splits, sizes, axes, stacked)
    if dim is None:
        return None, ()
    parts = math.prod(sizes[axis] for axis in (*splits[dim], *over))
    return (dim, over) if shape[dim] > parts else (None, ())


@wrong("values")
def dim_at_least_as_large(shape, splits, sizes, axes, *, stacked):
    """Rounds up, as if the shards were padded."""
    over = tuple(axis for axis in axes if sizes[axis] > 1 and axis not in sum(splits, ()))
    while over:
        for dim in range(stacked, len(shape)):
            parts = math.prod(sizes[axis] for axis in (*splits[dim], *over))
            if shape[dim] >= parts:
                return dim, over
        over = over[1:]
    return None, ()


@wrong("values")
def dim_with_an_axis_of_each_alone(shape, splits, sizes, axes, *, stacked):
    """One axis at a time, the innermost first: never two together."""
    for axis in reversed(axes):
        dim, over = _searched(shape, splits, sizes, (axis,), stacked)
        if dim is not None:
            return dim, over
    return None, ()


@wrong("values")
def dim_over_the_most_devices(shape, splits, sizes, axes, *, stacked):
    """The axes, in any choice, with which most devices share the leaf."""
    found, most = (None, ()), 1
    for chosen in product((True, False), repeat=len(axes)):
        some = tuple(axis for axis, use in zip(axes, chosen, strict=True) if use)
        dim, over = _searched(shape, splits, sizes, some, stacked)
        count = math.prod(sizes[axis] for axis in over)
        if count > most:
            found, most = (dim, over), count
    return found


@wrong("values")
def dim_of_the_last_that_divides(shape, splits, sizes, axes, *, stacked):
    dim, over = _searched(shape, splits, sizes, axes, stacked)
    if dim is None:
        return None, ()
    n = math.prod(sizes[axis] for axis in over)
    for last in reversed(range(dim, len(shape))):
        local = shape[last] // math.prod(sizes[axis] for axis in splits[last])
        if local and local % n == 0:
            return last, over
    raise AssertionError


@wrong("values")
def dim_of_the_least_split(shape, splits, sizes, axes, *, stacked):
    """Whole dims before those that are split."""
    whole = tuple(1 if split else size for size, split in zip(shape, splits, strict=True))
    free = tuple(axis for axis in axes if axis not in sum(splits, ()))
    dim, over = _searched(whole, ((),) * len(shape), sizes, free, stacked)
    return (dim, over) if over else _searched(shape, splits, sizes, axes, stacked)


@wrong("values")
def dim_by_text_of_splits(shape, splits, sizes, axes, *, stacked):
    """Whether the name of an axis is anywhere in the text: dp is in fsdp, and tp in tpx."""
    free = tuple(axis for axis in axes if axis not in str(splits))
    return _searched(shape, splits, sizes, free, stacked)


@wrong("values")
def dim_in_int32(shape, splits, sizes, axes, *, stacked):
    shape = tuple(int(size) for size in np.array(shape).astype(np.int32))
    return _searched(shape, splits, sizes, axes, stacked)


@wrong("values")
def dim_in_float32(shape, splits, sizes, axes, *, stacked):
    shape = tuple(int(np.float32(size)) for size in shape)
    return _searched(shape, splits, sizes, axes, stacked)


@wrong("values")
def dim_of_leaves_with_elements(shape, splits, sizes, axes, *, stacked):
    """A leaf without elements is not sharded at all."""
    if 0 in shape:
        return None, ()
    return _searched(shape, splits, sizes, axes, stacked)


@wrong("values")
def dim_of_leaves_with_dims(shape, splits, sizes, axes, *, stacked):
    """Fails for a scalar."""
    return _searched(shape, splits, sizes, axes, stacked) if shape[0] else (None, ())
