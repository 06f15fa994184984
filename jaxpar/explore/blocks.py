"""Which block of an array each device of a mesh holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod

Block = tuple[slice, ...]


def blocks(
    shape: Mapping[str, int], layout: Mapping[str, Sequence[str]], mesh: Mapping[str, int]
) -> list[Block]:
    """The block of each device, in the order of the mesh, whose last axis counts fastest.

    Args:
        shape: The size of each dim, by its name.
        layout: For each dim the axes that split it, outermost first.
        mesh: The sizes of the axes, by their names.

    Raises:
        ValueError: An axis splits two dims or is none of the mesh's, or a dim cannot be split.
    """
    _check(shape, layout, mesh)
    places = product(*map(range, mesh.values()))
    return [_block(shape, layout, mesh, dict(zip(mesh, place, strict=True))) for place in places]


def pieces(axes: Sequence[str], mesh: Mapping[str, int]) -> int:
    """How many pieces the axes split a dim into."""
    return prod(mesh[axis] for axis in axes)


def piece(axes: Sequence[str], mesh: Mapping[str, int], at: Mapping[str, int]) -> int:
    """The number of the piece of a dim that a device at these places on the axes holds."""
    number = 0
    for axis in axes:
        number = number * mesh[axis] + at[axis]
    return number


def _block(
    shape: Mapping[str, int],
    layout: Mapping[str, Sequence[str]],
    mesh: Mapping[str, int],
    at: Mapping[str, int],
) -> Block:
    found = []
    for dim, size in shape.items():
        axes = layout[dim]
        local = size // pieces(axes, mesh)
        start = local * piece(axes, mesh, at)
        found.append(slice(start, start + local))
    return tuple(found)


def _check(
    shape: Mapping[str, int], layout: Mapping[str, Sequence[str]], mesh: Mapping[str, int]
) -> None:
    used: dict[str, str] = {}
    for dim, size in shape.items():
        for axis in layout[dim]:
            if axis not in mesh:
                raise ValueError(
                    f"blocks: dim {dim} is split over {axis}, which the mesh does not have; use "
                    f"one of {', '.join(mesh)}"
                )
            if axis in used:
                raise ValueError(
                    f"blocks: axis {axis} splits dim {used[axis]} and dim {dim}; use it once"
                )
            used[axis] = dim
        count = pieces(layout[dim], mesh)
        if size % count:
            raise ValueError(
                f"blocks: dim {dim} (size {size}) must be divisible by the {count} devices that "
                f"split it; use a size of {-(-size // count) * count}, or fewer devices"
            )
