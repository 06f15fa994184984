"""Answers to local_shape: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

import numpy as np
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
    for size, word in zip(shape, layout.split(), strict=True):
        for axis in word.split("_")[1:]:
            if size % _size(sizes, axis):
                raise ValueError(f"{word}: {size} does not divide by {sizes[axis]}")
            size //= sizes[axis]
        local.append(size)
    return local


@right
def shape_by_counting(shape, layout, sizes):
    """Removes one axis after the other."""
    words = layout.split()
    if len(words) != len(shape):
        raise ValueError(f"{layout} for {shape}")
    local = list(shape)
    for i, word in enumerate(words):
        axes = word.split("_")[1:]
        if not set(axes) <= set(sizes):
            raise ValueError(f"{word} on {sizes}")
        while axes:
            local[i], rest = divmod(local[i], sizes[axes.pop()])
            if rest:
                raise ValueError(f"{word}: {shape[i]}")
    return local


@right
def shape_by_partition_spec(shape, layout, sizes):
    """The spec has an entry for each dim: None, an axis, or a tuple of axes."""
    entries = tuple(spec(layout))
    if len(entries) != len(shape):
        raise ValueError(layout)
    local = []
    for size, entry in zip(shape, entries, strict=True):
        axes = entry if isinstance(entry, tuple) else (entry,) if entry else ()
        n = math.prod(sizes.get(axis, 0) for axis in axes)
        if n == 0 or size % n:
            raise ValueError(layout)
        local.append(size // n)
    return tuple(local)


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


def _by_words(shape, words, sizes):
    """As `shape_by_hand_as_list`, of the words that a wrong answer finds in the layout."""
    return shape_by_hand_as_list(shape, " ".join(words), sizes)


@wrong("values")
def shape_split_at_each_blank(shape, layout, sizes):
    """The layout of a scalar has one word here."""
    if len(layout.split(" ")) != len(shape):
        raise ValueError(layout)
    return _by_words(shape, layout.split(" "), sizes)


@wrong("values")
def shape_of_dims_of_one_letter(shape, layout, sizes):
    return _by_words(
        shape,
        [f"{word[0]}{word[1:]}" if word[1:2] in ("", "_") else word[0] for word in layout.split()],
        sizes,
    )


@wrong("values")
def shape_of_axes_inside_words(shape, layout, sizes):
    """Whether the name of an axis is anywhere in the word: tp is in tpx."""
    words = layout.split()
    if any(axis not in sizes for word in words for axis in word.split("_")[1:]):
        raise ValueError(layout)
    found = ["_".join(["d", *(axis for axis in sizes if axis in word)]) for word in words]
    return _by_words(shape, found, sizes)


@wrong("values")
def shape_of_dims_named_as_axes(shape, layout, sizes):
    """The dim itself counts as an axis."""
    words = layout.split()
    if any(axis not in sizes for word in words for axis in word.split("_")[1:]):
        raise ValueError(layout)
    found = [
        "_".join(["d", *(axis for axis in sizes if axis in word.split("_"))]) for word in words
    ]
    return _by_words(shape, found, sizes)


@wrong("values")
def shape_of_usual_axes(shape, layout, sizes):
    return shape_by_hand_as_list(shape, layout, {a: n for a, n in sizes.items() if a in "dp tp cp"})


@wrong("values")
def shape_in_float32(shape, layout, sizes):
    local = shape_by_hand_as_list(shape, layout, sizes)
    return tuple(int(np.float32(size)) for size in local)


@wrong("values")
def shape_at_least_one(shape, layout, sizes):
    """Sizes of 0 are refused."""
    if 0 in shape:
        raise ValueError(shape)
    return shape_by_hand_as_list(shape, layout, sizes)


@wrong("values")
def shape_of_three_dims(shape, layout, sizes):
    local = shape_by_hand_as_list(shape, layout, sizes)
    return [*local[:3], *shape[3:]]


@wrong("values")
def shape_of_two_axes(shape, layout, sizes):
    """The fourth axis of a dim is forgotten."""
    words = ["_".join(word.split("_")[:4]) for word in layout.split()]
    return _by_words(shape, words, sizes)
