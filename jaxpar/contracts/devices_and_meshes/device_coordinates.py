"""The position of a device in a mesh, from its number and the sizes of the axes."""

from __future__ import annotations

import math

import numpy as np

from jaxpar import mesh
from jaxpar.contracts.base import Contract, wrong


def _position(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(rank, sizes))


def _ranks_and_sizes(rng: np.random.Generator) -> list[tuple[tuple, dict]]:
    """Random ranks in the usual meshes and in random ones, then ranks that tell mistakes apart."""
    meshes: list[tuple[int, ...]] = [(8,), (2, 4), (4, 2), (3, 1, 2), (2, 3, 2, 2)]
    meshes += [tuple(int(size) for size in rng.integers(2, 6, 3)) for _ in range(8)]
    ranks = [int(rng.integers(math.prod(sizes))) for sizes in meshes]
    chosen = [(rank, (2, 3, 4)) for rank in (0, 9, 23)]
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
