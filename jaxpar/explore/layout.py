"""The explorer of layouts: which block of an array each device holds, and what a gather sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from jaxpar.axes import parse_mesh
from jaxpar.cost.communication import wire_bytes
from jaxpar.drawing.elements import LETTERS
from jaxpar.drawing.layout import Cell, Panel, Panels
from jaxpar.explore.blocks import Block, blocks, piece, pieces
from jaxpar.explore.controls import choice, number, read, text

DIMS = ("b", "t", "d")
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
MOST_DEVICES = 16
SPLIT = "Axes that split it, outermost first, with blanks between."

CONTROLS = (
    text("mesh", "mesh", "dp=2,tp=4", "The axes of the mesh and their sizes."),
    number("b", "size of b", 8, 1, 4096, "The size of the first dim, the batch."),
    text("b_axes", "b over", "dp", SPLIT),
    number("t", "size of t", 4, 1, 4096, "The size of the second dim, the positions."),
    text("t_axes", "t over", "", SPLIT),
    number("d", "size of d", 16, 1, 4096, "The size of the third dim, the model's."),
    text("d_axes", "d over", "tp", SPLIT),
    choice("dtype", "dtype", "float32", ITEM_BYTES, "What an element is."),
)


def answer(form: Mapping[str, Any]) -> dict[str, Any]:
    """The block of each device, and what an all-gather over each axis would send.

    Raises:
        ValueError: a field has a value that is not allowed, or the array cannot be split so.
    """
    given = read("layout", CONTROLS, form)
    mesh = _mesh(given["mesh"])
    shape = {dim: given[dim] for dim in DIMS}
    layout = {dim: given[f"{dim}_axes"].split() for dim in DIMS}
    held = blocks(shape, layout, mesh)
    local = [part.stop - part.start for part in held[0]]
    local_bytes = prod(local) * ITEM_BYTES[given["dtype"]]
    places = [dict(zip(mesh, at, strict=True)) for at in product(*map(range, mesh.values()))]
    devices = [
        {"device": device, "at": at, "block": [[part.start, part.stop] for part in block]}
        for device, (at, block) in enumerate(zip(places, held, strict=True))
    ]
    gathers = list(_gathers(layout, mesh, local, local_bytes))
    in_words = " ".join("_".join((dim, *axes)) for dim, axes in layout.items())
    title = f"{given['dtype']}{[*shape.values()]} as {in_words!r} on mesh {given['mesh']}"
    splits = [pieces(axes, mesh) for axes in layout.values()]
    return {
        "title": title,
        "svg": _picture(title, held, layout, mesh, places).to_svg(),
        "numbers": [
            ["shape on a device", str(local)],
            ["bytes on a device", f"{local_bytes:,}"],
            ["bytes of the array", f"{prod(shape.values()) * ITEM_BYTES[given['dtype']]:,}"],
            ["copies of each block", f"{len(held) // prod(splits)}"],
        ],
        "tables": [_device_table(devices), _gather_table(gathers)],
        "notes": ["A letter and a colour stand for a block: devices of one letter hold a copy."],
        "layout": in_words,
        "axes": [
            {"name": axis, "size": size, "dim": _dim_of(axis, layout)}
            for axis, size in mesh.items()
        ],
        "dims": [
            {"name": dim, "size": shape[dim], "axes": layout[dim], "pieces": count}
            for dim, count in zip(DIMS, splits, strict=True)
        ],
        "devices": devices,
        "local_shape": local,
        "local_bytes": local_bytes,
        "gathers": gathers,
    }


def _mesh(words: str) -> dict[str, int]:
    mesh = parse_mesh(words)
    if prod(mesh.values()) > MOST_DEVICES:
        raise ValueError(
            f"layout: mesh {words!r} has {prod(mesh.values()):,} devices; at most {MOST_DEVICES} "
            "can be drawn; use smaller axes"
        )
    return mesh


def _dim_of(axis: str, layout: Mapping[str, Sequence[str]]) -> str | None:
    return next((dim for dim, axes in layout.items() if axis in axes), None)


def _gathers(
    layout: Mapping[str, Sequence[str]], mesh: Mapping[str, int], local: Sequence[int], size: int
) -> Iterator[dict[str, Any]]:
    """What an all-gather over each axis that splits a dim sends from each device, and gives."""
    for place, (dim, axes) in enumerate(layout.items()):
        for axis in axes:
            n, gathered = mesh[axis], list(local)
            gathered[place] *= n
            yield {
                "axis": axis,
                "dim": dim,
                "wire_bytes": wire_bytes("all_gather", size, n),
                "local_shape": gathered,
            }


def _device_table(devices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [
        [
            str(one["device"]),
            ", ".join(f"{axis} {place}" for axis, place in one["at"].items()),
            *(f"{start}:{stop}" for start, stop in one["block"]),
        ]
        for one in devices
    ]
    return {
        "title": "What each device holds",
        "headers": ["device", "place", *DIMS],
        "rows": rows,
        "numeric": [True, False, True, True, True],
    }


def _gather_table(gathers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [
        [one["axis"], one["dim"], f"{one['wire_bytes']:,}", str(one["local_shape"])]
        for one in gathers
    ]
    return {
        "title": "What an all-gather would send",
        "headers": ["over", "of dim", "bytes from a device", "then on a device"],
        "rows": rows,
        "numeric": [False, False, True, False],
    }


def _picture(
    title: str,
    held: Sequence[Block],
    layout: Mapping[str, Sequence[str]],
    mesh: Mapping[str, int],
    places: Sequence[Mapping[str, int]],
) -> Panels:
    """The array in blocks, the last dim to the right and the others down, and each device's."""
    splits = [pieces(axes, mesh) for axes in layout.values()]
    numbers = [
        _number([piece(axes, mesh, at) for axes in layout.values()], splits) for at in places
    ]
    held_by = dict(zip(numbers, held, strict=True))
    cells = [_cell(held_by[number], number) for number in range(prod(splits))]
    width = splits[-1]
    rows = tuple(tuple(cells[start : start + width]) for start in range(0, len(cells), width))
    names = tuple(", ".join(f"{axis} {place}" for axis, place in at.items()) for at in places)
    *_, columns = mesh.values()
    first_two, last = " and ".join(DIMS[:-1]), DIMS[-1]
    whole = Panel("The whole array", (rows,), (f"{first_two} down, {last} to the right",), (), 1)
    each = tuple(((cells[number],),) for number in numbers)
    return Panels(title, [whole, Panel("What each device holds", each, names, (), columns)])


def _number(places: Sequence[int], splits: Sequence[int]) -> int:
    number = 0
    for place, count in zip(places, splits, strict=True):
        number = number * count + place
    return number


def _cell(block: Block, number: int) -> Cell:
    ranges = " ".join(f"{part.start}:{part.stop}" for part in block)
    return ranges, number % len(LETTERS)
