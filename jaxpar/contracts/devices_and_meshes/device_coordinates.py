"""The position of a device in a mesh, from its number and the sizes of the axes."""

from __future__ import annotations

import math

import numpy as np

from jaxpar import mesh
from jaxpar.contracts.base import Contract, wrong


def _position(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(rank, sizes))


def _ranks_and_sizes(rng: np.random.Generator) -> list[tuple[tuple, dict]]:
    """Random ranks in the usual meshes and in random ones, then ranks that tell mistakes apart.

    The last ones are of meshes without axes, of devices alone, of many axes, and of so many devices
    that bfloat16, float16 or float32 do not hold their ranks.
    """
    meshes: list[tuple[int, ...]] = [(8,), (2, 4), (4, 2), (3, 1, 2), (2, 3, 2, 2)]
    meshes += [tuple(int(size) for size in rng.integers(2, 6, 3)) for _ in range(8)]
    ranks = [int(rng.integers(math.prod(sizes))) for sizes in meshes]
    chosen: list[tuple[int, tuple[int, ...]]] = [(rank, (2, 3, 4)) for rank in (0, 9, 23)]
    chosen += [(0, ()), (0, (1,)), (0, (1, 1, 1))]
    many = tuple(int(size) for size in rng.permutation([1, 1, 2, 2, 2, 2, 2, 3, 3, 5]))
    chosen += [(int(rng.integers(math.prod(many))), many), (math.prod(many) - 1, many)]
    chosen += [(2 * int(rng.integers(1100, 2000)) + 1, (10, 20, 20)) for _ in range(2)]
    chosen += [(2**24 + 1, (257, 256, 256))]
    return [(call, {}) for call in [*zip(ranks, meshes, strict=True), *chosen]]


CONTRACT = Contract(
    kind="value",
    task="return the position of device number `rank` as a tuple, the last axis fastest",
    reference=mesh.device_coordinates,
    oracle=_position,
    values=_ranks_and_sizes,
    hints=(
        "A rank is a number whose digits are the positions: try to write 11 in a mesh of 3 by 4.",
        "The last digit is rank % size of the last axis; what is left over is rank // size.",
        "Go through reversed(sizes) with rank, place = divmod(rank, size), and reverse the list at "
        "the end.",
    ),
    minimal="It is arithmetic on the rank: no device has to ask another where it is.",
    harder="Write the inverse: the rank of the device at given coordinates.",
)


@wrong("values")
def first_axis_fastest(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The first axis of `sizes` moves fastest here; in a mesh the last one does, so start from the
    end."""
    position = []
    for size in sizes:
        rank, place = divmod(rank, size)
        position.append(place)
    return tuple(position)


@wrong("values")
def not_turned_round(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The positions are right, but the last axis comes first; reverse their order."""
    position = []
    for size in reversed(sizes):
        rank, place = divmod(rank, size)
        position.append(place)
    return tuple(position)


@wrong("values")
def stride_without_remainder(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Each position is the rank divided by the sizes after its axis, but never reduced modulo the
    size of the axis itself."""
    return tuple(rank // math.prod(sizes[i + 1 :]) for i in range(len(sizes)))


@wrong("values")
def remainder_without_stride(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Each position is the rank modulo the size of its axis; first divide by the sizes of the axes
    after it."""
    return tuple(rank % size for size in sizes)


@wrong("values")
def own_size_as_stride(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The rank is divided by the size of the axis itself; divide it by the product of the sizes of
    the axes after it."""
    return tuple(rank // size % size for size in sizes)


@wrong("values")
def ranks_from_one(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Ranks are counted from one here; the first device has rank 0."""
    position = []
    rank -= 1
    for size in reversed(sizes):
        rank, place = divmod(rank, size)
        position.append(place)
    return tuple(reversed(position))


@wrong("values")
def needs_an_axis(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """This fails for a mesh without axes; it has one device, at ()."""
    *slower, size = sizes
    if not slower:
        return (rank,)
    return (*needs_an_axis(rank // size, tuple(slower)), rank % size)


@wrong("values")
def three_axes_at_most(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The positions on the last three axes are right, but a mesh may have more axes; go through all
    of `sizes`."""
    position = []
    for size in reversed(sizes[-3:]):
        rank, place = divmod(rank, size)
        position.append(place)
    return (*(0,) * len(sizes[:-3]), *reversed(position))


@wrong("values")
def rank_in_float32(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The rank is a float32, which holds no odd number above 2**24; use integers."""
    return _position(int(np.float32(rank)), sizes)
