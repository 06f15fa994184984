"""Sums as stacked bars of their terms: what a device's memory holds, what a step's time goes to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from jaxpar.drawing import elements
from jaxpar.drawing.elements import (
    CHARACTER,
    GREY,
    HEADING,
    INK,
    element,
    letter,
    part,
    round_numbers,
    titled,
)

TEXT_BAR = 60  # columns of the longest bar

# Sizes in an SVG file, in pixels.
MARGIN, TOP, BAR, HEIGHT, ROW, KEY_ROW = 24, 76, 720, 30, 56, 22


@dataclass(frozen=True)
class Bars:
    """Sums of terms, one bar for each sum, all to one scale; a term has one colour and letter.

    Attributes:
        title: What they are.
        unit: The unit of the terms.
        bars: The name of each sum, and its terms by name.
        limit: What no sum may exceed, as a name and a value.
    """

    title: str
    unit: str
    bars: Mapping[str, Mapping[str, float]]
    limit: tuple[str, float] | None = None

    def to_text(self) -> str:
        """The bars as lines of a terminal, and beneath them a table of the terms."""
        room = max(map(len, (*self.bars, self.limit[0] if self.limit else "")))
        lines = titled(self.title)
        for name, terms in self.bars.items():
            line = "".join(self._text_cell(*cell) for cell in self._cells(terms, TEXT_BAR))
            lines.append(f"{name:>{room}} \u2502{line} {self._with_unit(sum(terms.values()))}")
        if self.limit:
            name, value = self.limit
            line = "\u2500" * round(value / self._longest() * TEXT_BAR)
            lines.append(f"{name:>{room}} \u2502{line} {self._with_unit(value)}")
        return "\n".join([*lines, "", *self._table_lines()])

    def to_svg(self) -> str:
        """The bars as an SVG file, in which each part also shows its value under the pointer."""
        bottom = TOP + ROW * len(self.bars)
        parts = [elements.text(MARGIN, MARGIN + 12, self.title, **HEADING)]
        for place, (name, terms) in enumerate(self.bars.items()):
            parts += self._svg_bar(name, terms, TOP + ROW * place)
        parts += self._svg_axis(bottom)
        if self.limit:
            parts += self._svg_limit(*self.limit, bottom)
        top = bottom + 40
        for number, name in enumerate(self._terms()):
            y = top + KEY_ROW * number
            parts.append(part(number, MARGIN, y, 30, 16))
            parts.append(elements.text(MARGIN + 40, y + 13, f"{letter(number)}  {name}"))
        height = top + KEY_ROW * len(self._terms()) + MARGIN
        return elements.document(2 * MARGIN + BAR + 100, height, parts)

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
        """The letter and the number of a term, as far as there is room."""
        width = end - start
        with_number = f"{letter(number)} {self._number(value)}"
        text = with_number if len(with_number) < width else letter(number) * (width > 1)
        return f"{text:<{width - 1}}\u2502" if width else ""

    def _svg_bar(self, name: str, terms: Mapping[str, float], top: int) -> Iterator[str]:
        yield elements.text(MARGIN, top + 12, name)
        names, end = self._terms(), 0
        for number, start, end, value in self._cells(terms, BAR):
            if end > start:
                title = element("title", escape(f"{names[number]}: {value:.4g} {self.unit}"))
                inside = [part(number, MARGIN + start, top + 18, end - start, HEIGHT, title)]
                label = self._svg_label(number, value, end - start)
                if len(label) > 1:  # the line of a limit is less likely to cross it at the left
                    inside.append(elements.text(MARGIN + start + 5, top + 38, label))
                else:
                    middle = MARGIN + (start + end) / 2
                    inside.append(elements.text(middle, top + 38, label, text_anchor="middle"))
                yield element("g", *inside, **{"class": "term", "data_term": names[number]})
        total = self._with_unit(sum(terms.values()))
        yield elements.text(MARGIN + end + 8, top + 38, total)

    def _svg_label(self, number: int, value: float, width: int) -> str:
        """The longest label that fits: with the term's name, its value, its letter, or none."""
        short = f"{letter(number)} {self._number(value)}"
        labels = f"{letter(number)} {self._terms()[number]} {self._number(value)}", short
        fitting = (label for label in labels if CHARACTER * len(label) < width)
        return next(fitting, letter(number) if width > CHARACTER else "")

    def _svg_axis(self, bottom: int) -> Iterator[str]:
        longest = self._longest()
        yield _line(MARGIN, bottom, MARGIN + BAR, bottom, GREY)
        for number in round_numbers(0, longest, longest / 10):
            x = MARGIN + number / longest * BAR
            yield _line(x, bottom, x, bottom + 5, GREY)
            yield elements.text(x, bottom + 19, f"{number:,g}", text_anchor="middle", fill=GREY)
        yield elements.text(MARGIN + BAR + 20, bottom + 19, self.unit, fill=GREY)

    def _svg_limit(self, name: str, value: float, bottom: int) -> Iterator[str]:
        x = MARGIN + value / self._longest() * BAR
        yield _line(x, TOP - 8, x, bottom, INK, stroke_width=2, stroke_dasharray="6 4")
        words = f"{name}: {self._with_unit(value)}"
        anchor = "middle" if x > MARGIN + CHARACTER * len(words) / 2 else "start"
        yield elements.text(x, TOP - 14, words, text_anchor=anchor)

    def _with_unit(self, value: float) -> str:
        return f"{self._number(value)} {self.unit}"

    def _number(self, value: float) -> str:
        """A number, with as many decimals as give the longest bar four digits."""
        decimals = max(0, 3 - math.floor(math.log10(self._longest())))
        return f"{value:,.{decimals}f}"

    def _table_lines(self) -> Iterator[str]:
        names, bars = self._terms(), self.bars.items()
        room = max(map(len, (*names, self.unit)))
        yield f"   {self.unit:<{room}}" + "".join(f"  {bar:>9}" for bar in self.bars)
        for number, name in enumerate(names):
            values = (
                f"{self._number(terms.get(name, 0)):>{max(9, len(bar))}}" for bar, terms in bars
            )
            yield "  ".join((f"{letter(number)}  {name:<{room}}", *values))


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str, **attributes: object) -> str:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **attributes)
