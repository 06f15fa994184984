"""Curves, points and the roofline: lines of a terminal, and SVG by matplotlib."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from jaxpar.drawing.elements import GREY, INK, letter, round_numbers, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROWS, COLUMNS = 16, 64
# Okabe and Ito's palette without yellow, which is too pale for a line on white.
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#999999", "#000000")
LETTERS_ON_A_CURVE = 4


@dataclass(frozen=True)
class Curves:
    """Several curves over the same places, each with a colour, a width and a letter.

    Where curves meet, their letters take turns, so that each can be seen.

    Attributes:
        title: What the picture shows.
        across: What the places are, and their unit.
        up: What the values are, and their unit.
        places: Where the values stand, in order.
        curves: The name of each curve, and its value at each place.
    """

    title: str
    across: str
    up: str
    places: Sequence[float]
    curves: Mapping[str, Sequence[float]]

    def __post_init__(self) -> None:
        for name, values in self.curves.items():
            if len(values) != len(self.places):
                raise ValueError(
                    f"Curves: {name!r} has {len(values)} values, and there are "
                    f"{len(self.places)} places; give a value for each place"
                )

    def to_text(self) -> str:
        """The curves as lines of a terminal."""
        (left, right), (low, high) = self._across(), self._up()
        rows: list[list[str]] = [[" "] * COLUMNS for _ in range(ROWS)]
        for column in range(COLUMNS):
            place = left + (right - left) * column / (COLUMNS - 1)
            meeting: dict[int, str] = {}
            for number, values in enumerate(self.curves.values()):
                row = _row(np.interp(place, self.places, values), low, high)
                meeting[row] = meeting.get(row, "") + letter(number)
            for row, letters in meeting.items():
                rows[row][column] = letters[column % len(letters)]
        heights, places = _ticks(low, high, 6), _ticks(left, right, 8)
        lines = _chart(
            self.up,
            self.across,
            rows,
            {_row(height, low, high): text for height, text in heights.items()},
            {_column(place, left, right): text for place, text in places.items()},
        )
        names = (f"{letter(number)}  {name}" for number, name in enumerate(self.curves))
        return "\n".join([*titled(self.title), *lines, "", *names])

    def to_svg(self) -> str:
        """The curves as an SVG file."""
        from matplotlib.ticker import MaxNLocator

        figure, axes = _figure(self.title, self.across, self.up)
        left, right = self._across()
        count = len(self.curves)
        for number, (name, values) in enumerate(self.curves.items()):
            colour = COLOURS[number % len(COLOURS)]
            # Those that are drawn first are wider, so that they show beneath the others.
            axes.plot(
                self.places,
                values,
                color=colour,
                linewidth=2 + 2 * (count - 1 - number),
                label=f"{letter(number)}  {name}",
            )
            turns = number + 0.5 + count * np.arange(LETTERS_ON_A_CURVE)
            places = left + (right - left) * turns / (count * LETTERS_ON_A_CURVE)
            _mark(axes, number, places, np.interp(places, self.places, values))
        axes.ticklabel_format(useOffset=False)
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True))
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
        return _svg(figure)

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    def _across(self) -> tuple[float, float]:
        return self.places[0], self.places[-1]

    def _up(self) -> tuple[float, float]:
        values = np.concatenate([np.asarray(values) for values in self.curves.values()])
        return float(values.min()), float(values.max())


@dataclass(frozen=True)
class Points:
    """Points over a log scale, each with a colour and a letter.

    Attributes:
        title: What the picture shows.
        across: What is on the log scale, and its unit.
        up: What the values are, and their unit.
        points: The name of each point, its place on the scale, and its value.
    """

    title: str
    across: str
    up: str
    points: Mapping[str, tuple[float, float]]

    def to_text(self) -> str:
        """The points as lines of a terminal."""
        places, values = zip(*self.points.values(), strict=True)
        (left, right), low, high = _decades(places), min(values), max(values)
        rows = [[" "] * COLUMNS for _ in range(ROWS)]
        for number, (place, value) in enumerate(self.points.values()):
            column = _column(math.log10(place), left, right)
            _put(letter(number), rows[_row(value, low, high)], column)
        heights = _ticks(low, high, 6)
        lines = _chart(
            self.up,
            self.across,
            rows,
            {_row(height, low, high): text for height, text in heights.items()},
            {_column(power, left, right): _number(10.0**power) for power in range(left, right + 1)},
        )
        return "\n".join([*titled(self.title), *lines, "", *self._legend()])

    def to_svg(self) -> str:
        """The points as an SVG file."""
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

        figure, axes = _figure(self.title, self.across, self.up)
        axes.set_xscale("log")
        axes.margins(0.1)
        pairs = zip(self._legend(), self.points.values(), strict=True)
        for number, (line, (place, value)) in enumerate(pairs):
            colour = COLOURS[number % len(COLOURS)]
            axes.plot([place], [value], "o", color=colour, markersize=8, label=line)
        left, right = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if right < 100 * left else (1,)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))
        axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
        figure.draw_without_rendering()  # now the points have their places on the page
        places = np.array(list(self.points.values()))
        on_page = axes.transData.transform(places) * 72 / figure.dpi
        for number, aside in enumerate(_asides(on_page)):
            axes.annotate(
                letter(number),
                places[number],
                xytext=tuple(aside),
                textcoords="offset points",
                ha="center",
                va="center",
                arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.5, "shrinkB": 0},
            )
        return _svg(figure)

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    def _legend(self) -> Iterator[str]:
        for number, (name, (place, value)) in enumerate(self.points.items()):
            yield f"{letter(number)}  {name}: {_number(place)}, {_number(value)}"


@dataclass(frozen=True)
class Roofline:
    """The FLOPs in a second that a device attains, over FLOPs for each byte; both on log scales.

    Attributes:
        title: What the picture shows.
        attainable_flops: The FLOPs in a second that a program attains with so many FLOPs for each
            byte of memory; it rises to the ridge, and is flat from there.
        ridge: The FLOPs for each byte from which on arithmetic is the bound.
        points: The name of each program, and its FLOPs for each byte.
    """

    title: str
    attainable_flops: Callable[[float], float]
    ridge: float
    points: Mapping[str, float]

    across = "FLOPs for each byte of memory"
    up = "TFLOP/s"

    def to_text(self) -> str:
        """The roof as lines of a terminal."""
        left, right = self._decades()
        low, high = (self._log_height(10.0**power) for power in (left, right))
        rows = [[" "] * COLUMNS for _ in range(ROWS)]
        for column in range(COLUMNS):
            intensity = 10 ** (left + (right - left) * column / (COLUMNS - 1))
            row = _row(self._log_height(intensity), low, high)
            rows[row][column] = "." if intensity < self.ridge else "\u2500"
        ridge = math.log10(self.ridge)
        for row in range(ROWS):
            rows[row][_column(ridge, left, right)] = "\u2502" if row else "\u252c"
        for number, intensity in enumerate(self.points.values()):
            column = _column(math.log10(intensity), left, right)
            _put(letter(number), rows[_row(self._log_height(intensity), low, high)], column)
        heights = [*range(math.ceil(low), math.floor(high) + 1), high]
        lines = _chart(
            self.up,
            self.across,
            rows,
            {_row(power, low, high): f"{10**power:,.4g}" for power in heights},
            {_column(power, left, right): f"{10.0**power:,g}" for power in range(left, right + 1)},
        )
        meaning = (
            f"\u2502  ridge, {self.ridge:,.0f} FLOPs for each byte: memory is the bound to the "
            "left of it, arithmetic to the right"
        )
        return "\n".join([*titled(self.title), *lines, "", *self._legend(), meaning])

    def to_svg(self) -> str:
        """The roof as an SVG file."""
        from matplotlib.ticker import FuncFormatter

        figure, axes = _figure(self.title, self.across, self.up)
        ends = [10.0**power for power in self._decades()]
        roof = [ends[0], self.ridge, ends[1]]
        axes.loglog(roof, [self._height(one) for one in roof], color=GREY, linewidth=3)
        axes.axvline(self.ridge, color=GREY, linestyle="--", linewidth=1)
        axes.plot([self.ridge], [self._height(self.ridge)], "D", color=GREY, markersize=8)
        axes.annotate(
            f"ridge: {self.ridge:,.0f} FLOPs for each byte\n"
            "left of it, memory is the bound;\nright of it, arithmetic",
            (self.ridge, self._height(ends[0])),
            xytext=(8, 4),
            textcoords="offset points",
        )
        for number, (line, intensity) in enumerate(
            zip(self._legend(), self.points.values(), strict=True)
        ):
            colour, height = COLOURS[number % len(COLOURS)], self._height(intensity)
            axes.plot([intensity], [height], "o", color=colour, markersize=16, label=line)
            _mark(axes, number, [intensity], [height])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        figure.legend(loc="outside lower left", frameon=False, markerscale=0.6)
        return _svg(figure)

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    def _height(self, intensity: float) -> float:
        """The TFLOP/s that a program of this intensity attains."""
        return self.attainable_flops(intensity) / 1e12

    def _log_height(self, intensity: float) -> float:
        return math.log10(self._height(intensity))

    def _decades(self) -> tuple[int, int]:
        return _decades((self.ridge, *self.points.values()))

    def _legend(self) -> Iterator[str]:
        for number, (name, intensity) in enumerate(self.points.items()):
            bound = "memory" if intensity < self.ridge else "arithmetic"
            reached = (
                f"{intensity:,.4g} FLOPs for each byte, {self._height(intensity):,.4g} {self.up}"
            )
            yield f"{letter(number)}  {name}: {reached}, bound by {bound}"


def _number(value: float) -> str:
    """A number with four digits or more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.4g}"


def _decades(places: Iterable[float]) -> tuple[int, int]:
    """The exponents of two powers of ten that enclose all places."""
    powers = [math.log10(place) for place in places]
    return math.floor(min(powers) - 0.1), math.ceil(max(powers) + 0.1)


def _put(mark: str, row: list[str], column: int) -> None:
    """Writes a letter at the free place that is nearest: letters on one place stand in a row."""
    free = [place for place, there in enumerate(row) if not there.isalpha()]
    row[min(free, key=lambda place: (abs(place - column), -place))] = mark


def _asides(places: np.ndarray) -> Iterator[np.ndarray]:
    """How far beside its point each letter stands: as near as other points and letters allow."""
    turns = np.radians(np.arange(0, 360, 30))
    around = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    taken = list(places)
    for place in places:
        candidates = (place + radius * turn for radius in itertools.count(12, 6) for turn in around)
        free = next(one for one in candidates if np.linalg.norm(taken - one, axis=1).min() > 10)
        taken.append(free)
        yield free - place


def _row(value: float, low: float, high: float) -> int:
    return round((high - value) / ((high - low) or 1) * (ROWS - 1))


def _column(value: float, left: float, right: float) -> int:
    return round((value - left) / ((right - left) or 1) * (COLUMNS - 1))


def _ticks(low: float, high: float, most: int) -> dict[float, str]:
    """Round numbers between `low` and `high`, at most `most` + 1 of them, each with its text."""
    if low == high:
        return {low: f"{low:,g}"}
    numbers = list(round_numbers(low, high, (high - low) / most))
    decimals = max(len(f"{number:g}".partition(".")[2]) for number in numbers)
    return {number: f"{number:,.{decimals}f}" for number in numbers}


def _chart(
    up: str,
    across: str,
    rows: Sequence[Sequence[str]],
    row_labels: Mapping[int, str],
    column_labels: Mapping[int, str],
) -> Iterator[str]:
    """Rows of characters between two axes with labels."""
    room = max(map(len, row_labels.values()), default=0)
    yield up
    for number, row in enumerate(rows):
        mark = "\u2524" if number in row_labels else "\u2502"
        yield f"{row_labels.get(number, ''):>{room}} {mark}{''.join(row)}".rstrip()
    marks = ("\u252c" if column in column_labels else "\u2500" for column in range(COLUMNS))
    yield " " * (room + 1) + "\u2514" + "".join(marks)
    line = ""
    for column, label in column_labels.items():
        line = line.ljust(room + 2 + column - len(label) // 2) + label
    yield line
    yield " " * (room + 2) + across.center(COLUMNS).rstrip()


def _figure(title: str, across: str, up: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5))
    figure.set_layout_engine("constrained", w_pad=0.15, h_pad=0.15)
    axes = figure.subplots()
    figure.suptitle(title, x=0.02, ha="left", fontsize=14, fontweight="bold")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(color="#DDDDDD")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _mark(axes: Axes, number: int, across: ArrayLike, up: ArrayLike) -> None:
    """Letters at these points, each on a white disc above all lines."""
    axes.plot(across, up, "o", color="white", markersize=12, zorder=10)
    axes.plot(across, up, marker=f"${letter(number)}$", color=INK, linestyle="none", zorder=11)


def _svg(figure: Figure) -> str:
    """The figure as SVG: equal figures give equal files, and text stays text."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "jaxpar"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
