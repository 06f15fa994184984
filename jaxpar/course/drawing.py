"""What a picture of arrays over devices holds, and how it becomes lines or an SVG file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html import escape

TEXT_COLUMNS = 100
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Okabe and Ito's palette for every kind of colour vision, with grey in place of black.
COLOURS = (
    "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999",
)  # fmt: skip
CELL_HEIGHT, CHARACTER, GAP, MARGIN, PADDING = 30, 9, 20, 24, 8
TITLE_HEIGHT, NAME_HEIGHT, ARROW_HEIGHT = 40, 22, 64

Cell = tuple[str, int | None]
"""The value, and whose it is: a number that picks colour and letter; None for nobody's."""
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
class Picture:
    """Panels from the top down."""

    title: str
    panels: tuple[Panel, ...]

    def to_text(self) -> str:
        """The picture as lines of a terminal.

        Raises:
            ValueError: it is wider than 100 columns.
        """
        lines = [self.title, "=" * len(self.title)]
        for panel in self.panels:
            lines += ["", *_panel_text(panel, self._slot(panel, _text_width))]
        widest = max(map(len, lines))
        if widest > TEXT_COLUMNS:
            raise ValueError(
                f"picture: {self.title!r} is {widest} columns wide; at most {TEXT_COLUMNS} are "
                "allowed; put fewer devices side by side, or fewer cells in a row"
            )
        return "\n".join(line.rstrip() for line in lines)

    def to_svg(self) -> str:
        """The picture as an SVG file."""
        body = [label(MARGIN, MARGIN + 12, self.title, 'font-size="18" font-weight="bold"')]
        top, width = MARGIN + TITLE_HEIGHT, 2 * MARGIN + 11 * len(self.title)
        for panel in self.panels:
            slot = self._slot(panel, _svg_width)
            parts, height = _panel_svg(panel, slot, top)
            body += parts
            top += height
            inside = max(panel.columns * (slot + GAP) - GAP, 8 * len(panel.title))
            width = max(width, 2 * MARGIN + inside)
        return SVG.format(width=width, height=top - GAP + MARGIN, body="\n".join(body))

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    def _slot(self, panel: Panel, width: Callable[[Panel], int]) -> int:
        """The width of a device: that of the widest in any panel that stands in line with it."""
        return max(width(other) for other in self.panels if other.columns == panel.columns)


def _marked(cell: Cell) -> str:
    text, owner = cell
    return text if owner is None else f"{text}{LETTERS[owner % len(LETTERS)]}"


def _cell_width(panel: Panel) -> int:
    return max(len(_marked(cell)) for block in panel.blocks for row in block for cell in row)


def _text_width(panel: Panel) -> int:
    boxes = (len(block[0]) * (_cell_width(panel) + 1) + 3 for block in panel.blocks)
    return max(*boxes, *map(len, panel.names))


def _panel_text(panel: Panel, slot: int) -> Iterator[str]:
    yield panel.title
    for row in panel.rows:
        yield " ".join(panel.names[number].center(slot) for number in row)
        boxes = [_box_text(panel.blocks[number], _cell_width(panel), slot) for number in row]
        height = max(map(len, boxes))
        boxes = [box + [" " * slot] * (height - len(box)) for box in boxes]
        yield from (" ".join(parts) for parts in zip(*boxes, strict=True))
    centres = [place * (slot + 1) + slot // 2 for place in range(panel.columns)]
    yield from _arrow_lines(panel.arrows, centres)


def _box_text(block: Block, width: int, slot: int) -> list[str]:
    rows = [" ".join(_marked(cell).rjust(width) for cell in row) for row in block]
    lid = "\u2500" * (len(rows[0]) + 2)
    lines = [f"\u250c{lid}\u2510", *(f"\u2502 {row} \u2502" for row in rows), f"\u2514{lid}\u2518"]
    return [line.center(slot) for line in lines]


def _arrow_lines(arrows: Iterable[tuple[int, int]], centres: list[int]) -> list[str]:
    """Arrows from device to device, as many in a line as do not meet; a swap is one line."""
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
    boxes = (len(block[0]) * _svg_cell(panel) + 2 * PADDING for block in panel.blocks)
    return max(*boxes, *(8 * len(name) for name in panel.names))


def _svg_cell(panel: Panel) -> int:
    return CHARACTER * max(3, _cell_width(panel)) + 18


def _panel_svg(panel: Panel, slot: int, top: int) -> tuple[list[str], int]:
    """The parts of a panel, and its height."""
    parts, y = [label(MARGIN, top, panel.title, 'font-size="15"')], top + 10
    for row in panel.rows:
        height = max(len(panel.blocks[number]) for number in row) * CELL_HEIGHT + 2 * PADDING
        for place, number in enumerate(row):
            middle = MARGIN + place * (slot + GAP) + slot // 2
            name = 'font-size="13" text-anchor="middle" fill="#444"'
            parts.append(label(middle, y + 15, panel.names[number], name))
            parts += _box_svg(panel.blocks[number], middle, y + NAME_HEIGHT, _svg_cell(panel))
        y += NAME_HEIGHT + height + PADDING
    if panel.arrows:
        centres = [MARGIN + place * (slot + GAP) + slot // 2 for place in range(panel.columns)]
        for source, target in panel.arrows:
            parts.append(_arrow_svg(centres[source], y - 4, centres[target], y + ARROW_HEIGHT))
        y += ARROW_HEIGHT
    return parts, y + GAP + 10 - top


def _box_svg(block: Block, middle: int, y: int, cell: int) -> Iterator[str]:
    width = len(block[0]) * cell + 2 * PADDING
    left = middle - width // 2
    height = len(block) * CELL_HEIGHT + 2 * PADDING
    yield (
        f'<rect x="{left}" y="{y}" width="{width}" height="{height}" rx="6" fill="none" '
        'stroke="#555" stroke-width="1.5"/>'
    )
    for i, row in enumerate(block):
        for j, (text, owner) in enumerate(row):
            place = left + PADDING + j * cell, y + PADDING + i * CELL_HEIGHT
            yield from _cell_svg(text, owner, *place, cell)


def _cell_svg(text: str, owner: int | None, x: int, y: int, width: int) -> Iterator[str]:
    fill = "#FFFFFF" if owner is None else COLOURS[owner % len(COLOURS)]
    yield (
        f'<rect x="{x}" y="{y}" width="{width}" height="{CELL_HEIGHT}" fill="{fill}" '
        'fill-opacity="0.55" stroke="#222" stroke-width="0.8"/>'
    )
    middle = x + width // 2 - (0 if owner is None else 4)
    yield label(middle, y + 20, text, 'font-size="15" text-anchor="middle"')
    if owner is not None:
        letter = LETTERS[owner % len(LETTERS)]
        yield label(x + width - 4, y + 13, letter, 'font-size="12" text-anchor="end"')


def _arrow_svg(x1: int, y1: int, x2: int, y2: int) -> str:
    ends = f'x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"'
    return f'<line {ends} stroke="#222" stroke-width="1.8" marker-end="url(#head)"/>'


def label(x: int, y: int, text: str, style: str = "") -> str:
    """A text of an SVG file."""
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="14">
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" \
orient="auto"><path d="M0 0L10 5L0 10z" fill="#222"/></marker></defs>
<rect width="100%" height="100%" fill="#FFFFFF"/>
{body}
</svg>
"""
