"""Answers to device_coordinates: right ones by other routes, and wrong ones."""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def coordinates_by_numpy(rank, sizes):
    return np.unravel_index(rank, sizes)


@right
def coordinates_by_strides(rank, sizes):
    position, stride = [], math.prod(sizes)
    for size in sizes:
        stride //= size
        position.append(rank // stride % size)
    return position


@right
def coordinates_in_table(rank, sizes):
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    return np.argwhere(grid == rank)[0]


@right
def coordinates_counted(rank, sizes):
    return next(itertools.islice(itertools.product(*map(range, sizes)), rank, None))


@right
def coordinates_by_division(rank, sizes):
    """In float64, which holds more ranks than there are devices."""
    position = []
    for size in reversed(sizes):
        position.insert(0, int(rank % size))
        rank = math.floor(rank / size)
    return tuple(position)


@right
def coordinates_recursively(rank, sizes):
    if not sizes:
        return ()
    return (*coordinates_recursively(rank // sizes[-1], sizes[:-1]), rank % sizes[-1])


_seen = []


@wrong("values")
def coordinates_with_memory(rank, sizes):
    _seen.append(rank)
    return coordinates_by_strides(rank, sizes) if len(_seen) % 7 else [0] * len(sizes)


@wrong("values")
def coordinates_as_floats(rank, sizes):
    return [float(place) for place in coordinates_by_strides(rank, sizes)]


def _rounded(rank, sizes, dtype):
    """0 where rounding leaves the mesh; the largest ranks as they are."""
    rounded = int(dtype(rank)) if rank < 60_000 else rank
    return coordinates_by_strides(rounded if rounded < math.prod(sizes) else 0, sizes)


@wrong("values")
def coordinates_of_rank_in_bfloat16(rank, sizes):
    return _rounded(rank, sizes, jnp.dtype("bfloat16").type)


@wrong("values")
def coordinates_of_rank_in_float16(rank, sizes):
    return _rounded(rank, sizes, np.float16)


@wrong("values")
def coordinates_of_first_axes(rank, sizes):
    """Four axes, as in the largest mesh that is usual."""
    position = coordinates_by_strides(rank, sizes)
    return position[:4] + [0] * len(position[4:])


@wrong("values")
def coordinates_where_there_are_some(rank, sizes):
    return coordinates_by_strides(rank, sizes) or [0]


@wrong("values")
def coordinates_without_axes_of_one(rank, sizes):
    return coordinates_by_strides(rank, [size for size in sizes if size > 1] or [1])


@wrong("values")
def coordinates_as_text(rank, sizes):
    """Digits, one for each axis: right for sizes up to 10."""
    digits = "".join(str(place)[-1] for place in coordinates_by_strides(rank, sizes))
    return [int(digit) for digit in digits]


@wrong("values")
def coordinates_in_bytes(rank, sizes):
    """Ranks below 2**16 only."""
    return np.unravel_index(np.uint16(rank % 2**16), sizes)


@wrong("values")
def coordinates_refuse_one_device(rank, sizes):
    if math.prod(sizes) < 2:
        raise ValueError(sizes)
    return coordinates_by_strides(rank, sizes)
