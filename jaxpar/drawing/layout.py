"""Layouts of arrays: what every device holds, step by step, and what is sent in between.

Each cell has a value, and a colour with a letter for the device that owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jaxpar.drawing import elements
from jaxpar.drawing.elements import HEADING, INK, box, colour, element, letter, titled

TEXT_COLUMNS = 100
CELL_HEIGHT, CHARACTER, GAP, MARGIN, PADDING = 30, 9, 20, 24, 8
TITLE_HEIGHT, NAME_HEIGHT, ARROW_HEIGHT = 40, 22, 64

NOBODY = -1
Values = ArrayLike | int | float
Cell = tuple[str, int | None]
"""The value, and the device that owns it, which picks colour and letter; None: no device does."""
Block = tuple[tuple[Cell, ...], ...]
"""The rows of cells that one device holds."""


@dataclass(frozen=True)
class Panel:
    """What every device holds at one moment.

    Attributes:
        title: What happens here.
        blocks: What each device holds.
        names: What stands above each device.
        arrows: (source, target) pairs of devices: what is sent from here to the next panel.
        columns: Devices side by side.
    """

    title: str
    blocks: tuple[Block, ...]
    names: tuple[str, ...]
    arrows: tuple[tuple[int, int], ...]
    columns: int

    @property
    def rows(self) -> Iterator[range]:
        """The numbers of the devices that stand side by side, from the top."""
        for start in range(0, len(self.blocks), self.columns):
            yield range(start, min(start + self.columns, len(self.blocks)))


@dataclass(frozen=True)
class Panels:
    """Panels from the top down, under one title."""

    title: str
    panels: Sequence[Panel]

    def to_text(self) -> str:
        """The panels as lines of a terminal.

        Raises:
            ValueError: they are wider than 100 columns.
        """
        lines = titled(self.title)[:-1]
        for panel in self.panels:
            lines += ["", *panel_lines(panel, self._slot(panel, text_width))]
        widest = max(map(len, lines))
        if widest > TEXT_COLUMNS:
            raise ValueError(
                f"Panels: {self.title!r} is {widest} columns wide; at most {TEXT_COLUMNS} are "
                "allowed; put fewer devices side by side, or fewer cells in a row"
            )
        return "\n".join(line.rstrip() for line in lines)

    def to_svg(self) -> str:
        """The panels as an SVG file."""
        parts = [_arrow_head(), elements.text(MARGIN, MARGIN + 12, self.title, **HEADING)]
        top, width = MARGIN + TITLE_HEIGHT, 2 * MARGIN + 11 * len(self.title)
        for panel in self.panels:
            slot = self._slot(panel, _svg_width)
            panel_parts, height = _panel_svg(panel, slot, top)
            parts += panel_parts
            top += height
            inside = max(panel.columns * (slot + GAP) - GAP, 8 * len(panel.title))
            width = max(width, 2 * MARGIN + inside)
        return elements.document(width, top - GAP + MARGIN, parts)

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    def _slot(self, panel: Panel, width: Callable[[Panel], int]) -> int:
        """The width of a device: that of the widest in any panel that stands in line with it."""
        return max(width(other) for other in self.panels if other.columns == panel.columns)


def panel(
    title: str,
    arrays: Iterable[Values],
    owners: Iterable[Values] | None = None,
    *,
    names: Sequence[str] | None = None,
    arrows: Iterable[tuple[int, int]] = (),
    columns: int | None = None,
) -> Panel:
    """What every device holds at one moment.

    Args:
        title: What happens here.
        arrays: For each device an array of numbers or short texts: dim 0 goes down, dim 1 to
            the right.
        owners: For each device whose cells these are: a number (0 is "a" and orange), or an
            array of numbers, one for each cell or for each row; NOBODY for white. Left out:
            each device owns its own.
        names: What stands above each device; "device 0", "device 1" ... if left out.
        arrows: (source, target) pairs of devices, drawn towards the next panel; both panels
            must have all devices side by side.
        columns: Devices side by side; all if left out.
    """
    held = [_two_dims(np.asarray(array)) for array in arrays]
    whose = range(len(held)) if owners is None else owners
    blocks = tuple(_block(values, owner) for values, owner in zip(held, whose, strict=True))
    titles = [f"device {number}" for number in range(len(held))] if names is None else names
    return Panel(title, blocks, tuple(titles), tuple(arrows), columns or len(held))


def array_panels(title: str, x: Any) -> Panels:
    """An array as a whole, and the shard of it that each device of its mesh holds.

    Args:
        title: What the picture shows.
        x: A `jax.Array` with a `NamedSharding`.
    """
    mesh, owner = x.sharding.mesh, np.full(x.shape, NOBODY)
    shards = {shard.device: shard for shard in x.addressable_shards}
    places = list(np.ndindex(*mesh.devices.shape))
    for rank, place in enumerate(places):
        owner[shards[mesh.devices[place]].index] = rank
    parts = [np.asarray(shards[mesh.devices[place]].data) for place in places]
    names = [", ".join(map("{} {}".format, mesh.axis_names, place)) for place in places]
    held = f"What each device holds, shape {parts[0].shape}"
    whole = panel(f"The whole array, shape {x.shape}", [np.asarray(x)], [owner], names=["x"])
    return Panels(title, [whole, panel(held, parts, names=names, columns=mesh.devices.shape[-1])])


def _two_dims(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, 1) if values.ndim < 2 else values


def _block(values: np.ndarray, owner: Values) -> Block:
    owners = np.asarray(owner)
    whose = np.broadcast_to(_two_dims(owners) if owners.ndim else owners, values.shape)
    return tuple(
        tuple(
            (_show_value(value), None if one == NOBODY else int(one))
            for value, one in zip(row, row_owners, strict=True)
        )
        for row, row_owners in zip(values, whose, strict=True)
    )


def _show_value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def _marked(cell: Cell) -> str:
    text, owner = cell
    return text if owner is None else f"{text}{letter(owner)}"


def _cell_width(panel: Panel) -> int:
    return max(len(_marked(cell)) for block in panel.blocks for row in block for cell in row)


def text_width(panel: Panel) -> int:
    """The columns of a terminal that one device takes."""
    boxes = (len(block[0]) * (_cell_width(panel) + 1) + 3 for block in panel.blocks)
    return max(*boxes, *map(len, panel.names))


def panel_lines(panel: Panel, slot: int) -> Iterator[str]:
    """The lines of a panel whose devices take `slot` columns each."""
    yield panel.title
    for row in panel.rows:
        yield " ".join(panel.names[number].center(slot) for number in row)
        boxes = [_box_lines(panel.blocks[number], _cell_width(panel), slot) for number in row]
        height = max(map(len, boxes))
        boxes = [box + [" " * slot] * (height - len(box)) for box in boxes]
        yield from (" ".join(parts) for parts in zip(*boxes, strict=True))
    centres = [place * (slot + 1) + slot // 2 for place in range(panel.columns)]
    yield from _arrow_lines(panel.arrows, centres)


def _box_lines(block: Block, width: int, slot: int) -> list[str]:
    rows = [" ".join(_marked(cell).rjust(width) for cell in row) for row in block]
    lid = "\u2500" * (len(rows[0]) + 2)
    lines = [f"\u250c{lid}\u2510", *(f"\u2502 {row} \u2502" for row in rows), f"\u2514{lid}\u2518"]
    return [line.center(slot) for line in lines]


def _arrow_lines(arrows: Iterable[tuple[int, int]], centres: list[int]) -> list[str]:
    """Arrows between devices; those that do not overlap share a line, and a swap is one arrow."""
    targets: dict[tuple[int, int], set[int]] = {}
    for source, target in arrows:
        targets.setdefault((min(source, target), max(source, target)), set()).add(target)
    lines: list[str] = []
    for low, high in sorted(targets, key=lambda ends: (ends[1] - ends[0], ends)):
        heads = targets[low, high]
        start, end = centres[low] + 1, centres[high] - 1
        left = "\u25c0" if low in heads else "\u25cf"
        right = "\u25b6" if high in heads else "\u25cf"
        place = next((i for i, line in enumerate(lines) if len(line) <= start), len(lines))
        lines += [""] * (place == len(lines))
        lines[place] = lines[place].ljust(start) + left + "\u2500" * (end - start - 1) + right
    return lines


def _svg_width(panel: Panel) -> int:
    boxes = (len(block[0]) * _svg_cell_width(panel) + 2 * PADDING for block in panel.blocks)
    return max(*boxes, *(8 * len(name) for name in panel.names))


def _svg_cell_width(panel: Panel) -> int:
    return CHARACTER * max(3, _cell_width(panel)) + 18


def _panel_svg(panel: Panel, slot: int, top: int) -> tuple[list[str], int]:
    """The parts of a panel, and its height."""
    parts, y = [elements.text(MARGIN, top, panel.title, font_size=15)], top + 10
    for row in panel.rows:
        height = max(len(panel.blocks[number]) for number in row) * CELL_HEIGHT + 2 * PADDING
        for place, number in enumerate(row):
            middle = MARGIN + place * (slot + GAP) + slot // 2
            name = elements.text(
                middle, y + 15, panel.names[number], text_anchor="middle", fill="#444444"
            )
            parts.append(name)
            width = _svg_cell_width(panel)
            parts += _block_svg(panel.blocks[number], middle, y + NAME_HEIGHT, width)
        y += NAME_HEIGHT + height + PADDING
    if panel.arrows:
        centres = [MARGIN + place * (slot + GAP) + slot // 2 for place in range(panel.columns)]
        for source, target in panel.arrows:
            parts.append(_arrow_svg(centres[source], y - 4, centres[target], y + ARROW_HEIGHT))
        y += ARROW_HEIGHT
    return parts, y + GAP + 10 - top


def _block_svg(block: Block, middle: int, y: int, cell: int) -> Iterator[str]:
    width = len(block[0]) * cell + 2 * PADDING
    height = len(block) * CELL_HEIGHT + 2 * PADDING
    left = middle - width // 2
    yield box(left, y, width, height, rx=6, fill="none", stroke="#555555", stroke_width=1.5)
    for i, row in enumerate(block):
        for j, (text, owner) in enumerate(row):
            place = left + PADDING + j * cell, y + PADDING + i * CELL_HEIGHT
            yield from _cell_svg(text, owner, *place, cell)


def _cell_svg(text: str, owner: int | None, x: int, y: int, width: int) -> Iterator[str]:
    fill = "#FFFFFF" if owner is None else colour(owner)
    yield box(x, y, width, CELL_HEIGHT, fill=fill, fill_opacity=0.55, stroke=INK, stroke_width=0.8)
    middle = x + width // 2 - (0 if owner is None else 4)
    yield elements.text(middle, y + 20, text, font_size=15, text_anchor="middle")
    if owner is not None:
        yield elements.text(x + width - 4, y + 13, letter(owner), font_size=12, text_anchor="end")


def _arrow_svg(x1: int, y1: int, x2: int, y2: int) -> str:
    return element(
        "line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=INK, stroke_width=1.8, marker_end="url(#head)"
    )


def _arrow_head() -> str:
    head = element(
        "marker",
        element("path", d="M0 0L10 5L0 10z", fill=INK),
        id="head",
        viewBox="0 0 10 10",
        refX=9,
        refY=5,
        markerWidth=7,
        markerHeight=7,
        orient="auto",
    )
    return element("defs", head)
