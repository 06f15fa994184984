"""Makes a `Collective` from what a program says: groups of positions in the mesh, and operands."""

import math
from collections.abc import Iterable, Mapping, Sequence

from jaxpar.cost.communication import wire_bytes
from jaxpar.inspector.dtypes import buffer_bytes
from jaxpar.inspector.report import Collective, Kind

Mesh = Mapping[str, int]  # the sizes of the mesh's axes, in order
# Positions in the mesh (not device ids), in row-major order; the order within a group is free.
Groups = Sequence[Sequence[int]]
Pairs = Sequence[tuple[int, int]]  # (source, target) positions in the mesh
Operands = Sequence[tuple[str, int]]  # (dtype, elements) of each input array of one device


def make_collective(
    kind: Kind, groups: Groups, mesh: Mesh, operands: Operands, **rest
) -> Collective | None:
    """Makes a collective other than a permute; None if every group is a single device.

    `rest` are the other fields of `Collective`.
    """
    size = max(len(set(group)) for group in groups)
    if size == 1:
        return None
    axes = varying_axes(groups, mesh)
    dtype, operand_bytes = _sum_operands(operands)
    sent = wire_bytes(kind, operand_bytes, size)
    return Collective(kind, axes, size, dtype, operand_bytes, sent, **rest)


def make_permute(pairs: Pairs, mesh: Mesh, operands: Operands, **rest) -> Collective | None:
    """Makes a permute; None if every device sends to itself.

    `rest` are the other fields of `Collective`.
    """
    moves = [pair for pair in pairs if pair[0] != pair[1]]
    if not moves:
        return None
    axes = varying_axes(moves, mesh)
    dtype, operand_bytes = _sum_operands(operands)
    return Collective(
        kind="permute",
        axes=axes,
        group_size=math.prod(mesh[axis] for axis in axes),
        dtype=dtype,
        operand_bytes=operand_bytes,
        wire_bytes=wire_bytes("permute", operand_bytes, 2),
        pairs=_common_pairs(moves, mesh, axes),
        **rest,
    )


def axis_groups(parts: Sequence[tuple[str, str, str]], mesh: Mesh) -> list[list[int]]:
    """Returns the groups of positions that differ only along these axes, or parts of axes.

    Args:
        parts: (axis, before, size) each. The size of the axis is `before` * `size` * some rest, and
            the part is the factor `size`; if both are empty, the part is the whole axis.
        mesh: The mesh that has these axes.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for position in range(math.prod(mesh.values())):
        coordinates = _coordinates(position, mesh)
        for axis, before, size in parts:
            span = mesh[axis] // int(before or 1)
            inner = span // int(size or span)
            coordinates[axis] -= coordinates[axis] % span // inner * inner
        groups.setdefault(tuple(coordinates.values()), []).append(position)
    return list(groups.values())


def _sum_operands(operands: Operands) -> tuple[str, int]:
    names = "+".join(dict.fromkeys(dtype for dtype, _ in operands))
    return names, sum(buffer_bytes(dtype, elements) for dtype, elements in operands)


def _coordinates(position: int, mesh: Mesh) -> dict[str, int]:
    devices = math.prod(mesh.values())
    if not 0 <= position < devices:
        sizes = ",".join(f"{axis}={size}" for axis, size in mesh.items()) or "of no axes"
        raise ValueError(
            f"inspector: a collective names position {position}, but the mesh {sizes} has "
            f"positions 0 to {devices - 1}; inspect the program with its own mesh"
        )
    coordinates = {}
    for axis in reversed(tuple(mesh)):
        position, coordinates[axis] = divmod(position, mesh[axis])
    return coordinates


def varying_axes(groups: Iterable[Sequence[int]], mesh: Mesh) -> tuple[str, ...]:
    """Returns the axes along which the members of some group differ, in mesh order."""
    varying = set()
    for group in groups:
        members = [_coordinates(position, mesh) for position in group]
        varying |= {axis for axis in mesh if len({member[axis] for member in members}) > 1}
    return tuple(axis for axis in mesh if axis in varying)


def _common_pairs(
    moves: Pairs, mesh: Mesh, axes: tuple[str, ...]
) -> tuple[tuple[int, int], ...] | None:
    """The pairs of positions along `axes`; None if they differ between groups of devices."""
    by_group: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    for move in moves:
        source, target = (_coordinates(position, mesh) for position in move)
        elsewhere = tuple(source[axis] for axis in mesh if axis not in axes)
        along = (_position(source, mesh, axes), _position(target, mesh, axes))
        by_group.setdefault(elsewhere, set()).add(along)
    number_of_groups = math.prod(size for axis, size in mesh.items() if axis not in axes)
    first, *others = by_group.values()
    if len(by_group) != number_of_groups or any(other != first for other in others):
        return None
    return tuple(sorted(first))


def _position(coordinates: Mapping[str, int], mesh: Mesh, axes: tuple[str, ...]) -> int:
    """The row-major position along `axes` only."""
    position = 0
    for axis in axes:
        position = position * mesh[axis] + coordinates[axis]
    return position
