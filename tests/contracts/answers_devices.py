"""Answers to the exercises of lesson 01: right ones by other ways, wrong ones by clever ways."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding

from jaxpar.mesh import divide, parse_layout, spec


def coordinates_by_numpy(rank, sizes):
    return np.unravel_index(rank, sizes)


def coordinates_by_strides(rank, sizes):
    position, stride = [], math.prod(sizes)
    for size in sizes:
        stride //= size
        position.append(rank // stride % size)
    return position


def coordinates_in_table(rank, sizes):
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    return np.argwhere(grid == rank)[0]


_seen = []


def coordinates_with_memory(rank, sizes):
    _seen.append(rank)
    return coordinates_by_strides(rank, sizes) if len(_seen) % 7 else [0] * len(sizes)


def coordinates_as_floats(rank, sizes):
    return [float(place) for place in coordinates_by_strides(rank, sizes)]


def shape_by_sharding(shape, layout, sizes):
    if len(parse_layout(layout)) != len(shape):
        raise ValueError(f"{layout} for {shape}")
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    return NamedSharding(mesh, spec(layout)).shard_shape(tuple(shape))


def _size(sizes, axis):
    if axis not in sizes:
        raise ValueError(f"no axis {axis}")
    return sizes[axis]


def shape_by_parse_layout(shape, layout, sizes):
    return tuple(
        divide("mine", dim, size, axes, math.prod(_size(sizes, axis) for axis in axes))
        for size, (dim, axes) in zip(shape, parse_layout(layout), strict=True)
    )


def shape_by_hand_as_list(shape, layout, sizes):
    local = []
    for size, word in zip(shape, layout.split(" "), strict=True):
        for axis in word.split("_")[1:]:
            if size % _size(sizes, axis):
                raise ValueError(f"{word}: {size} does not divide by {sizes[axis]}")
            size //= sizes[axis]
        local.append(size)
    return local


def shape_that_asserts(shape, layout, sizes):
    local = []
    for size, (_, axes) in zip(shape, parse_layout(layout), strict=True):
        parts = math.prod(sizes[axis] for axis in axes)
        assert size % parts == 0
        local.append(size // parts)
    return tuple(local)


def shape_of_the_dims_named(shape, layout, sizes):
    """Checks what divides, and not whether the layout fits."""
    local = list(shape)
    for i, (_, axes) in enumerate(parse_layout(layout)):
        for axis in axes:
            local[i], rest = divmod(local[i], sizes.get(axis, 1))
            if rest:
                raise ValueError(layout)
    return tuple(local)


def shape_of_axes_looked_up(shape, layout, sizes):
    """A KeyError for an axis that is not there."""
    pairs = zip(shape, parse_layout(layout), strict=True)
    return tuple(
        divide("mine", dim, size, axes, math.prod(sizes[axis] for axis in axes))
        for size, (dim, axes) in pairs
    )


def shape_that_always_raises(shape, layout, sizes):
    raise ValueError("it does not divide")


def rank_by_promotion(x, *, axis):
    return x + lax.axis_index(axis)


def rank_from_table(x, *, axis):
    return x + jnp.arange(lax.axis_size(axis), dtype=x.dtype)[lax.axis_index(axis)]


def rank_in_loop(x, *, axis):
    return lax.fori_loop(0, lax.axis_index(axis), lambda _, y: y + jnp.ones((), x.dtype), x)


def rank_of_tp(x, *, axis):
    return x + lax.axis_index("tp")


@jax.custom_vjp
def _double_backward(x):
    return x


_double_backward.defvjp(lambda x: (x, None), lambda _, g: (2 * g,))


def rank_with_false_gradient(x, *, axis):
    return _double_backward(x) + lax.axis_index(axis)


def rank_by_chain(x, *, axis):
    n = lax.axis_size(axis)
    rank = jnp.zeros_like(x)
    for _ in range(n - 1):  # one more each time it moves on
        rank = lax.ppermute(rank + 1, axis, [(j, j + 1) for j in range(n - 1)])
    return x + rank


def rank_by_gather(x, *, axis):
    ranks = lax.all_gather(lax.axis_index(axis), axis)
    return x + ranks[lax.axis_index(axis)].astype(x.dtype)


RIGHT = {
    "device_coordinates": (coordinates_by_numpy, coordinates_by_strides, coordinates_in_table),
    "local_shape": (shape_by_sharding, shape_by_parse_layout, shape_by_hand_as_list),
    "add_rank": (rank_by_promotion, rank_from_table),
}
WRONG = {
    "device_coordinates": {coordinates_with_memory: "values", coordinates_as_floats: "values"},
    "local_shape": {
        shape_that_asserts: "values",
        shape_of_the_dims_named: "values",
        shape_of_axes_looked_up: "values",
        shape_that_always_raises: "values",
    },
    "add_rank": {
        rank_of_tp: "values",
        rank_with_false_gradient: "gradient",
        rank_by_chain: "communication",
        rank_by_gather: "communication",
    },
}
