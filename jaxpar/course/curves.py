"""Curves, such as losses step by step: as lines of a terminal, and as SVG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxpar.course.drawing import COLOURS, LETTERS, SVG, label

ROWS, COLUMNS = 16, 64
WIDTH, HEIGHT, TOP, LEFT, MARGIN, LEGEND = 660, 320, 60, 60, 24, 22


@dataclass(frozen=True)
class Curves:
    """Several curves over the same steps, each with a colour, a width and a letter.

    Where curves meet, lines of text show their letters in turn, and SVG one inside the other.
    """

    title: str
    across: str
    curves: Mapping[str, Sequence[float]]

    def to_text(self) -> str:
        """The curves as lines of a terminal."""
        low, high = self._range()
        rows: list[list[str]] = [[" "] * COLUMNS for _ in range(ROWS)]
        for column in range(COLUMNS):
            meeting: dict[int, str] = {}
            for letter, values in zip(LETTERS, self.curves.values(), strict=False):
                place = column * (len(values) - 1) / (COLUMNS - 1)
                value = np.interp(place, range(len(values)), values)
                row = round((high - value) / (high - low) * (ROWS - 1))
                meeting[row] = meeting.get(row, "") + letter
            for row, letters in meeting.items():
                rows[row][column] = letters[column % len(letters)]
        labels = {0: f"{high:.2f}", ROWS - 1: f"{low:.2f}"}
        room = max(map(len, labels.values()))
        lines = [self.title, "=" * len(self.title), ""]
        for row, cells in enumerate(rows):
            lines.append(f"{labels.get(row, ''):>{room}} \u2502{''.join(cells)}".rstrip())
        last = str(self._steps() - 1)
        lines.append(" " * (room + 1) + "\u2514" + "\u2500" * COLUMNS)
        lines.append(f"{'0':>{room + 3}}{self.across:^{COLUMNS - 1 - len(last)}}{last}")
        return "\n".join([*lines, "", *(f"{letter}  {name}" for letter, name in self._legend())])

    def to_svg(self) -> str:
        """The curves as an SVG file."""
        bottom = TOP + HEIGHT
        parts = [
            label(MARGIN, MARGIN + 12, self.title, 'font-size="18" font-weight="bold"'),
            _line([(LEFT, TOP), (LEFT, bottom), (LEFT + WIDTH, bottom)], "#222", 1),
            label(LEFT, bottom + 18, "0"),
            label(LEFT + WIDTH // 2, bottom + 18, self.across, 'text-anchor="middle"'),
            label(LEFT + WIDTH, bottom + 18, str(self._steps() - 1), 'text-anchor="end"'),
        ]
        low, high = self._range()
        for value, y in ((high, TOP + 5), (low, bottom + 5)):
            parts.append(label(LEFT - 6, y, f"{value:.2f}", 'text-anchor="end"'))
        for number, values in enumerate(self.curves.values()):
            across = np.linspace(LEFT, LEFT + WIDTH, len(values))
            down = bottom - HEIGHT * (np.asarray(values) - low) / (high - low)
            points = list(zip(across.tolist(), down.tolist(), strict=True))
            stroke = COLOURS[number % len(COLOURS)]
            parts.append(_line(points, stroke, 3 + 3 * (len(self.curves) - 1 - number)))
            end = LEFT + WIDTH + 12 * (number + 1)
            parts.append(label(end, round(down[-1]) + 5, LETTERS[number]))
        for number, (letter, name) in enumerate(self._legend()):
            y = bottom + 30 + LEGEND * (number + 1)
            stroke = COLOURS[number % len(COLOURS)]
            parts.append(_line([(LEFT, y - 5), (LEFT + 30, y - 5)], stroke, 6))
            parts.append(label(LEFT + 40, y, f"{letter}  {name}"))
        width = LEFT + WIDTH + 12 * (len(self.curves) + 1) + MARGIN
        height = bottom + 30 + LEGEND * len(self.curves) + MARGIN
        return SVG.format(width=width, height=height, body="\n".join(parts))

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    def _legend(self) -> Iterator[tuple[str, str]]:
        return zip(LETTERS, self.curves, strict=False)

    def _steps(self) -> int:
        return max(map(len, self.curves.values()))

    def _range(self) -> tuple[float, float]:
        values = np.concatenate([np.asarray(values) for values in self.curves.values()])
        return float(values.min()), float(values.max())


def _line(points: Sequence[tuple[float, float]], stroke: str, width: int) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="{width}"/>'
