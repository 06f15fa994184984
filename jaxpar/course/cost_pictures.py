"""Pictures of costs: sums as stacked bars, and the roofline; as lines of a terminal, and as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jaxpar.cost.roofline import attainable_flops
from jaxpar.course.drawing import COLOURS, LETTERS, MARGIN, SVG, label

TEXT_BAR, SVG_BAR, ROW = 60, 560, 40
ROWS, COLUMNS = 14, 64
WIDTH, HEIGHT, TOP, LEFT, LEGEND = 660, 320, 64, 70, 22
BOLD = 'font-size="18" font-weight="bold"'


@dataclass(frozen=True)
class Bars:
    """Sums of terms, one bar for each sum, all to one scale; a term has one colour and letter.

    Attributes:
        title: what they are.
        unit: of the terms.
        bars: the name of each sum, and its terms by name.
        limit: what no sum may exceed, as a name and a value.
    """

    title: str
    unit: str
    bars: Mapping[str, Mapping[str, float]]
    limit: tuple[str, float] | None = None

    def to_text(self) -> str:
        """The bars as lines of a terminal."""
        room = max(map(len, (*self.bars, self.limit[0] if self.limit else "")))
        lines = [self.title, "=" * len(self.title), ""]
        for name, terms in self.bars.items():
            line = "".join(self._text_cell(*cell) for cell in self._cells(terms, TEXT_BAR))
            total = f"{self._number(sum(terms.values()))} {self.unit}"
            lines.append(f"{name:>{room}} \u2502{line} {total}")
        if self.limit:
            name, value = self.limit
            line = "\u2500" * round(value / self._longest() * TEXT_BAR)
            lines.append(f"{name:>{room}} \u2502{line} {self._number(value)} {self.unit}")
        return "\n".join([*lines, "", *self._legend_lines()])

    def to_svg(self) -> str:
        """The bars as an SVG file."""
        left = MARGIN + 10 + 9 * max(map(len, self.bars))
        bottom = TOP + ROW * len(self.bars)
        parts = [label(MARGIN, MARGIN + 12, self.title, BOLD)]
        for place, (name, terms) in enumerate(self.bars.items()):
            y = TOP + ROW * place
            parts.append(label(left - 8, y + 20, name, 'text-anchor="end"'))
            for number, start, end, value in self._cells(terms, SVG_BAR):
                if end > start:
                    parts += self._svg_cell(number, left + start, y, end - start, value)
            total = f"{self._number(sum(terms.values()))} {self.unit}"
            parts.append(label(left + end + 8, y + 20, total))
        if self.limit:
            x = left + round(self.limit[1] / self._longest() * SVG_BAR)
            ends = f'x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{bottom}"'
            parts.append(f'<line {ends} stroke="#222" stroke-width="2" stroke-dasharray="6 4"/>')
            text = f"{self.limit[0]}: {self._number(self.limit[1])} {self.unit}"
            parts.append(label(x, TOP - 12, text, 'text-anchor="middle" font-size="13"'))
        for number, name in enumerate(self._terms()):
            y = bottom + 12 + LEGEND * number
            parts += _cell(left, y, 30, COLOURS[number % len(COLOURS)], 16)
            parts.append(label(left + 40, y + 13, f"{LETTERS[number]}  {name}"))
        height = bottom + 12 + LEGEND * len(self._terms()) + MARGIN
        return SVG.format(width=left + SVG_BAR + 130, height=height, body="\n".join(parts))

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    def _terms(self) -> list[str]:
        return list(dict.fromkeys(name for terms in self.bars.values() for name in terms))

    def _longest(self) -> float:
        sums = [sum(terms.values()) for terms in self.bars.values()]
        return max(*sums, self.limit[1] if self.limit else 0)

    def _cells(
        self, terms: Mapping[str, float], width: int
    ) -> Iterator[tuple[int, int, int, float]]:
        """For each term its number, where it starts and ends, and its value."""
        scale, at = width / self._longest(), 0.0
        for number, name in enumerate(self._terms()):
            value = terms.get(name, 0)
            yield number, round(at * scale), round((at + value) * scale), value
            at += value

    def _text_cell(self, number: int, start: int, end: int, value: float) -> str:
        """The letter and the number, as far as there is room."""
        letter, width = LETTERS[number], end - start
        with_number = f"{letter} {self._number(value)}"
        text = with_number if len(with_number) < width else letter * (width > 1)
        return f"{text:<{width - 1}}\u2502" if width else ""

    def _svg_cell(self, number: int, x: int, y: int, width: int, value: float) -> Iterator[str]:
        yield from _cell(x, y, width, COLOURS[number % len(COLOURS)], ROW - 10)
        with_number = f"{LETTERS[number]} {self._number(value)}"
        text = with_number if 8 * len(with_number) < width else LETTERS[number] * (width > 9)
        yield label(x + width // 2, y + 20, text, 'text-anchor="middle"')

    def _number(self, value: float) -> str:
        """With as many decimals as give the longest bar four digits."""
        decimals = max(0, 3 - math.floor(math.log10(self._longest())))
        return f"{value:,.{decimals}f}"

    def _legend_lines(self) -> Iterator[str]:
        names, bars = self._terms(), self.bars.items()
        room = max(map(len, (*names, self.unit)))
        yield f"   {self.unit:<{room}}" + "".join(f"  {bar:>9}" for bar in self.bars)
        for letter, name in zip(LETTERS, names, strict=False):
            values = (
                f"{self._number(terms.get(name, 0)):>{max(9, len(bar))}}" for bar, terms in bars
            )
            yield "  ".join((f"{letter}  {name:<{room}}", *values))


@dataclass(frozen=True)
class Roofline:
    """What a device can do in a second, over FLOPs for each byte of memory; both on log scales.

    Attributes:
        title: of the picture.
        peak_flops: of the device, in a second.
        memory_bytes_per_second: of the device.
        points: the name of each program, and its FLOPs for each byte.
    """

    title: str
    peak_flops: float
    memory_bytes_per_second: float
    points: Mapping[str, float]

    def to_text(self) -> str:
        """The roof as lines of a terminal."""
        rows = [[" "] * COLUMNS for _ in range(ROWS)]
        low, high = self._range()
        for column in range(COLUMNS):
            intensity = 10 ** (low + (high - low) * column / (COLUMNS - 1))
            rows[self._row(intensity)][column] = "\u2500" if intensity > self.ridge else "."
        for letter, intensity in zip(LETTERS, self.points.values(), strict=False):
            row = rows[self._row(intensity)]
            column = round((math.log10(intensity) - low) / (high - low) * (COLUMNS - 1))
            while row[column].isalpha():  # two programs on one place stand side by side
                column += 1
            row[column] = letter
        lines = [self.title, "=" * len(self.title), "", "TFLOP/s"]
        labels = {0: self._height(self.ridge), ROWS - 1: self._height(10**low)}
        for number, cells in enumerate(rows):
            lines.append(f"{labels.get(number, ''):>8} \u2502{''.join(cells)}".rstrip())
        ends = f"{10**low:g}", f"{10**high:,.0f}"
        across = f"{'FLOPs for each byte':^{COLUMNS - sum(map(len, ends))}}".join(ends)
        lines += [" " * 9 + "\u2514" + "\u2500" * COLUMNS, " " * 10 + across, ""]
        return "\n".join([*lines, *self._legend()])

    def to_svg(self) -> str:
        """The roof as an SVG file."""
        bottom, (low, high) = TOP + HEIGHT, self._range()
        roof = [self._place(10**low), self._place(self.ridge), self._place(10**high)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in roof)
        frame = f"{LEFT},{TOP} {LEFT},{bottom} {LEFT + WIDTH},{bottom}"
        parts = [
            label(MARGIN, MARGIN + 12, self.title, BOLD),
            f'<polyline points="{frame}" fill="none" stroke="#222" stroke-width="1"/>',
            f'<polyline points="{points}" fill="none" stroke="#555" stroke-width="3"/>',
            label(LEFT, TOP - 8, "TFLOP/s"),
            label(LEFT - 6, TOP + 5, self._height(self.ridge), 'text-anchor="end"'),
            label(LEFT - 6, bottom + 5, self._height(10**low), 'text-anchor="end"'),
            label(LEFT, bottom + 18, f"{10**low:g}"),
            label(LEFT + WIDTH // 2, bottom + 18, "FLOPs for each byte", 'text-anchor="middle"'),
            label(LEFT + WIDTH, bottom + 18, f"{10**high:,.0f}", 'text-anchor="end"'),
        ]
        for number, intensity in enumerate(self.points.values()):
            x, y = self._place(intensity)
            fill = COLOURS[number % len(COLOURS)]
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="{fill}" stroke="#222"/>')
            parts.append(label(round(x), round(y) + 24, LETTERS[number], 'text-anchor="middle"'))
        for number, line in enumerate(self._legend()):
            y = bottom + 30 + LEGEND * (number + 1)
            fill = COLOURS[number % len(COLOURS)]
            parts.append(f'<circle cx="{LEFT + 8}" cy="{y - 5}" r="8" fill="{fill}"/>')
            parts.append(label(LEFT + 24, y, line))
        height = bottom + 30 + LEGEND * len(self.points) + MARGIN
        across = max(WIDTH, 24 + 8 * max(map(len, self._legend())))  # 8 for a letter, or less
        return SVG.format(width=LEFT + across + MARGIN, height=height, body="\n".join(parts))

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    @property
    def ridge(self) -> float:
        """The FLOPs for each byte from which on arithmetic is the bound."""
        return self.peak_flops / self.memory_bytes_per_second

    def _attainable(self, intensity: float) -> float:
        return attainable_flops(intensity, self.peak_flops, self.memory_bytes_per_second)

    def _range(self) -> tuple[int, int]:
        """Powers of ten, with the ridge and all points between them."""
        powers = [math.log10(one) for one in (self.ridge, *self.points.values())]
        return math.floor(min(powers) - 0.1), math.ceil(max(powers) + 0.1)

    def _rise(self, intensity: float) -> float:
        """0 at the left end of the roof, 1 at its top."""
        lowest = self._attainable(10 ** self._range()[0])
        return math.log(self._attainable(intensity) / lowest) / math.log(self.peak_flops / lowest)

    def _row(self, intensity: float) -> int:
        return round((1 - self._rise(intensity)) * (ROWS - 1))

    def _place(self, intensity: float) -> tuple[float, float]:
        low, high = self._range()
        x = LEFT + WIDTH * (math.log10(intensity) - low) / (high - low)
        return x, TOP + HEIGHT * (1 - self._rise(intensity))

    def _height(self, intensity: float) -> str:
        return f"{self._attainable(intensity) / 1e12:,.4g}"

    def _legend(self) -> Iterator[str]:
        for letter, (name, intensity) in zip(LETTERS, self.points.items(), strict=False):
            bound = "memory" if intensity < self.ridge else "arithmetic"
            reached = f"{intensity:,.4g} FLOPs for each byte, {self._height(intensity)} TFLOP/s"
            yield f"{letter}  {name}: {reached}, bound by {bound}"


def _cell(x: int, y: int, width: int, fill: str, height: int) -> Iterator[str]:
    yield (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" '
        'fill-opacity="0.55" stroke="#222" stroke-width="0.8"/>'
    )
