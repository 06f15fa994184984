"""Steps of a function over devices: whose parts each collective takes and gives, device by device.

A letter stands for the part of a device, "abcd" for the sum of four parts, "ab2" for one that holds
b twice, "ab/2" for the half of one, and "." for no part at all.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

import numpy as np

from jaxpar.drawing import elements
from jaxpar.drawing.elements import CHARACTER, HEADING, INK, box, colour, element, letter

COLUMNS, LABEL, WIDEST = 80, 8, 18
MOST, LEFT_OUT = 16, ".."
"""Of an array, so many elements are drawn on a device, and the mark for more."""
SMALLEST = 1e-3
"""What is held less often than this is rounding, not a part."""
CELL_HEIGHT, GAP, MARGIN, SVG_LABEL, ARROW_HEIGHT = 24, 16, 24, 56, 40


@dataclass(frozen=True)
class Frame:
    """One collective, on all devices.

    Attributes:
        kind: permute, all_reduce, all_gather, reduce_scatter or all_to_all.
        axes: the names of the axes over which it goes.
        pairs: of a permute, (source, target) numbers of devices, counted along all axes.
        before: the arrays that it takes.
        after: the arrays that it gives.
    """

    kind: str
    axes: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    before: tuple[np.ndarray, ...]
    after: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Steps:
    """One run: what devices are given, its collectives in their order, and the results."""

    given: tuple[np.ndarray, ...]
    frames: tuple[Frame, ...]
    results: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Cell:
    """One element of an array on one device: its text, and the devices whose parts it holds."""

    text: str
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Row:
    """What stands beside a label: the cells of each device."""

    label: str
    cells: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Scene:
    """Rows under a heading; arrows lead from a device in the first to one in the second."""

    heading: str
    rows: tuple[Row, ...]
    arrows: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class StepPicture:
    """All steps, from the top down.

    Attributes:
        title: what happens.
        steps: each array is [devices, ..., parts], and says how often a value holds a part.
        axes: the sizes of the mesh's axes, by their names.
    """

    title: str
    steps: Steps
    axes: Mapping[str, int]

    @cached_property
    def names(self) -> list[str]:
        """The devices by their places in the mesh, such as 3, or 0,1 where there are two axes."""
        return [",".join(map(str, place)) for place in np.ndindex(*self.axes.values())]

    @cached_property
    def scenes(self) -> list[Scene]:
        """What is drawn."""
        steps = self.steps
        frames = [self._frame(number, frame) for number, frame in enumerate(steps.frames, 1)]
        given, result = _row("given", steps.given), _row("returned", steps.results)
        return [Scene("at the start", (given,)), *frames, Scene("at the end", (result,))]

    def _frame(self, number: int, frame: Frame) -> Scene:
        pairs = " ".join(f"{self.names[one]}>{self.names[other]}" for one, other in frame.pairs)
        over = f"step {number}: {frame.kind} over {', '.join(frame.axes)}"
        senders = {one for one, _ in frame.pairs} if frame.kind == "permute" else None
        rows = _row("sent", frame.before, senders), _row("received", frame.after)
        return Scene(f"{over}, {pairs}" if pairs else over, rows, frame.pairs)

    def to_text(self, columns: int = COLUMNS) -> str:
        """The steps as lines of a terminal."""
        room, count = columns - LABEL, len(self.names)  # the last device ends in no blank
        lines = math.ceil(count / max(1, room // (self._widest + 1)))
        across = math.ceil(count / lines)
        slot = max(self._widest + 1, min(WIDEST, room // across))
        written = elements.titled(self.title)
        for scene in self.scenes:
            written += textwrap.wrap(scene.heading, columns)
            for start in range(0, count, across):
                chosen = slice(start, start + across)
                names = "".join(name.ljust(slot) for name in self.names[chosen])
                written.append("device".ljust(LABEL + 1) + names)
                for row in scene.rows:
                    written += _row_lines(row.label, row.cells[chosen], slot)
            written.append("")
        return "\n".join(line.rstrip() for line in written).rstrip()

    def to_svg(self) -> str:
        """The steps as an SVG file."""
        slot = max(72, CHARACTER * self._widest + 16)
        parts = [
            element("title", escape(self.title)),
            elements.text(MARGIN, MARGIN + 12, self.title, **HEADING),
        ]
        top = MARGIN + 44
        for scene in self.scenes:
            parts.append(elements.text(MARGIN, top, scene.heading, font_size=15))
            names = (_middle(device, slot) for device in range(len(self.names)))
            parts += [
                elements.text(x, top + 20, f"device {name}", text_anchor="middle")
                for x, name in zip(names, self.names, strict=True)
            ]
            top += 28
            for row in scene.rows:
                parts += _row_svg(row, slot, top)
                top += CELL_HEIGHT * max(map(len, row.cells))
                if row is scene.rows[0] and scene.arrows:
                    parts += [_arrow(pair, slot, top) for pair in scene.arrows]
                    top += ARROW_HEIGHT - GAP
                top += GAP
            top += GAP
        words = max(11 * len(self.title), *(8 * len(scene.heading) for scene in self.scenes))
        width = 2 * MARGIN + max(words, SVG_LABEL + len(self.names) * slot)
        return elements.document(width, top, [element("g", *parts, role="img")])

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    @property
    def _widest(self) -> int:
        """The characters of the longest text in a cell."""
        rows = (row for scene in self.scenes for row in scene.rows)
        texts = [cell.text for row in rows for cells in row.cells for cell in cells]
        return max(map(len, (*texts, *self.names)))


def part_text(counts: np.ndarray) -> str:
    """How often a value holds each part, as letters: ab2, ab/2, or a full stop for no part."""
    held = {
        number: round(float(count), 3) for number, count in enumerate(counts) if abs(count) > 1e-3
    }
    if not held:
        return "."
    every = set(held.values())
    of_all = 1 / every.pop() if len(every) == 1 else 1
    if of_all > 1 and abs(of_all - round(of_all)) < 0.02:
        return "".join(map(letter, held)) + f"/{round(of_all)}"
    return "".join(letter(n) + ("" if count == 1 else f"{count:g}") for n, count in held.items())


def _row(label: str, arrays: Sequence[np.ndarray], devices: set[int] | None = None) -> Row:
    """The cells of arrays [devices, ..., parts]; where `devices` are given, of these only."""
    flat = [array.reshape(len(array), -1, array.shape[-1]) for array in arrays]
    held = np.concatenate(flat, axis=1)  # [devices, elements, parts]
    cut = [Cell(LEFT_OUT)] if held.shape[1] > MOST else []
    return Row(
        label,
        tuple(
            (*map(_cell, values[:MOST]), *cut) if devices is None or device in devices else ()
            for device, values in enumerate(held)
        ),
    )


def _cell(counts: np.ndarray) -> Cell:
    return Cell(part_text(counts), tuple(_held(counts)))


def _held(counts: np.ndarray) -> list[int]:
    return np.flatnonzero(np.abs(counts) > SMALLEST).tolist()


def _row_lines(label: str, cells: Sequence[Sequence[Cell]], slot: int) -> Iterator[str]:
    """The lines of a row: the cells of a device side by side, in as many lines as they take."""
    widest = max((len(cell.text) for device in cells for cell in device), default=1)
    beside = max(1, (slot - 1) // (widest + 1))  # with two blanks before the next device
    height = max(math.ceil(len(device) / beside) for device in cells)
    for line in range(height):
        shown = [device[line * beside : (line + 1) * beside] for device in cells]
        words = (" ".join(cell.text.ljust(widest) for cell in device) for device in shown)
        yield ("" if line else label).ljust(LABEL + 1) + "".join(w.ljust(slot) for w in words)


def _middle(device: int, slot: int) -> int:
    return MARGIN + SVG_LABEL + device * slot + slot // 2


def _row_svg(row: Row, slot: int, top: int) -> Iterator[str]:
    yield elements.text(MARGIN, top + 16, row.label)
    for device, cells in enumerate(row.cells):
        for place, cell in enumerate(cells):
            yield from _cell_svg(cell, _middle(device, slot), top + place * CELL_HEIGHT, slot - GAP)


def _cell_svg(cell: Cell, middle: int, y: int, width: int) -> Iterator[str]:
    """A box with a stripe in the colour of each part, and the text."""
    left, stripe = middle - width / 2, width / max(1, len(cell.parts))
    for place, part in enumerate(cell.parts):
        x = left + place * stripe
        yield box(x, y, stripe, CELL_HEIGHT, fill=colour(part), fill_opacity=0.55)
    yield box(left, y, width, CELL_HEIGHT, fill="none", stroke=INK, stroke_width=0.8)
    yield elements.text(middle, y + 17, cell.text, font_size=15, text_anchor="middle")


def _arrow(pair: tuple[int, int], slot: int, top: int) -> str:
    """A line with a head, from one device down to another."""
    (x1, x2), y1, y2 = (_middle(device, slot) for device in pair), top + 4, top + ARROW_HEIGHT - 4
    length = math.hypot(x2 - x1, y2 - y1)
    dx, dy = 7 * (x2 - x1) / length, 7 * (y2 - y1) / length
    head = (x2, y2), (x2 - dx - dy / 2, y2 - dy + dx / 2), (x2 - dx + dy / 2, y2 - dy - dx / 2)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in head)
    line = element("line", x1=x1, y1=y1, x2=x2 - dx, y2=y2 - dy, stroke=INK, stroke_width=1.5)
    return line + element("polygon", points=points, fill=INK)
