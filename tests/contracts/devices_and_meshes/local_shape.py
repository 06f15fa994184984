"""Answers to local_shape: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

from jax.sharding import AbstractMesh, NamedSharding

from jaxpar.contracts.base import wrong
from jaxpar.mesh import divide, parse_layout, spec
from tests.contracts.answers import right


@right
def shape_by_sharding(shape, layout, sizes):
    if len(parse_layout(layout)) != len(shape):
        raise ValueError(f"{layout} for {shape}")
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    return NamedSharding(mesh, spec(layout)).shard_shape(tuple(shape))


def _size(sizes, axis):
    if axis not in sizes:
        raise ValueError(f"no axis {axis}")
    return sizes[axis]


@right
def shape_by_parse_layout(shape, layout, sizes):
    return tuple(
        divide("mine", dim, size, axes, math.prod(_size(sizes, axis) for axis in axes))
        for size, (dim, axes) in zip(shape, parse_layout(layout), strict=True)
    )


@right
def shape_by_hand_as_list(shape, layout, sizes):
    local = []
    for size, word in zip(shape, layout.split(" "), strict=True):
        for axis in word.split("_")[1:]:
            if size % _size(sizes, axis):
                raise ValueError(f"{word}: {size} does not divide by {sizes[axis]}")
            size //= sizes[axis]
        local.append(size)
    return local


@wrong("values")
def shape_that_asserts(shape, layout, sizes):
    local = []
    for size, (_, axes) in zip(shape, parse_layout(layout), strict=True):
        parts = math.prod(sizes[axis] for axis in axes)
        assert size % parts == 0
        local.append(size // parts)
    return tuple(local)


@wrong("values")
def shape_of_the_dims_named(shape, layout, sizes):
    """Checks what divides, and not whether the layout fits."""
    local = list(shape)
    for i, (_, axes) in enumerate(parse_layout(layout)):
        for axis in axes:
            local[i], rest = divmod(local[i], sizes.get(axis, 1))
            if rest:
                raise ValueError(layout)
    return tuple(local)


@wrong("values")
def shape_of_axes_looked_up(shape, layout, sizes):
    """A KeyError for an axis that is not there."""
    pairs = zip(shape, parse_layout(layout), strict=True)
    return tuple(
        divide("mine", dim, size, axes, math.prod(sizes[axis] for axis in axes))
        for size, (dim, axes) in pairs
    )
