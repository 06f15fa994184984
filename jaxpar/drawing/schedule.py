"""Schedules over time: a row of cells for each device, each cell as wide as it takes time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from jaxpar.drawing import elements
from jaxpar.drawing.elements import (
    CHARACTER,
    GREY,
    HEADING,
    HEIGHTS,
    INK,
    box,
    element,
    round_numbers,
)
from jaxpar.schedules.generators import make_table
from jaxpar.schedules.simulator import Number, Simulation, simulate
from jaxpar.schedules.table import KINDS, Action

if TYPE_CHECKING:
    from rich.text import Text

# Four of Okabe and Ito's colours, for every kind of colour vision. That of I, which is half of a
# B, is close to that of B.
COLOURS = {"F": "#56B4E9", "B": "#E69F00", "I": "#F0E442", "W": "#009E73"}
BLACK = "#000000"

# In text: what stands where a device is idle, and what fills a cell after its label.
IDLE, FILL = ".", "-"
FULL, NUMBERED, LETTER = range(3)

# Sizes in an SVG file, in pixels.
MARGIN, NAMES, PADDING, MOST_WIDTH = 24, 90, 12, 8000
ROW, STRIP, GAP, LINE = 28, 28, 26, 22
KEY, KEY_WIDTH, EMPTY = 22, 200, "#EEEEEE"


class Cell(NamedTuple):
    """An action as it is drawn.

    Attributes:
        action: What the device does.
        labels: What may stand in the cell, longest first: "4F0", "f0", "f". A small letter is a
            chunk after the device's first.
    """

    action: Action
    start: Number
    end: Number
    colour: str
    labels: tuple[str, str, str]

    @property
    def duration(self) -> Number:
        """The time that the action takes."""
        return self.end - self.start


@dataclass
class Line:
    """A line of a terminal, as texts that each have a style of rich."""

    parts: list[tuple[str, str]] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(text) for text, _ in self.parts)

    def append(self, text: str, style: str = "") -> Line:
        """Adds a text at the end, and returns this line."""
        self.parts.append((text, style))
        return self

    @property
    def plain(self) -> str:
        """The line without its styles, and without blanks at the end."""
        return "".join(text for text, _ in self.parts).rstrip()


@dataclass(frozen=True)
class Track:
    """One schedule of a timeline.

    Attributes:
        name: What stands above it.
        simulation: When its actions run.
        paper: The published schedule that it is to be compared with, if there is one.
        runs: Whether its table breaks no rule; else an SVG file leaves out what is in flight.
    """

    name: str
    simulation: Simulation
    paper: str = ""
    runs: bool = True

    def rival(self, name: str, chunks: int | None = None) -> Track:
        """A published schedule of the same sizes and the same work, to be drawn beneath.

        If its stages have half as many layers as ours, its cells cost half as much.

        Raises:
            ValueError: there is no such schedule, or it does not take these sizes.
        """
        mine, costs = self.simulation.table, self.simulation.costs
        table = make_table(name, mine.devices, mine.microbatches, chunks)
        if table.stages != mine.stages:
            scale = mine.stages / table.stages
            cells = {kind: getattr(costs, kind) * scale for kind in KINDS}
            costs = replace(costs, **cells)
        return Track(name, simulate(table, costs), name)

    @property
    def title(self) -> str:
        """The name, the sizes, and the cost of each kind of cell."""
        table, costs = self.simulation.table, self.simulation.costs
        sizes = {
            "device": table.devices,
            "chunk": table.chunks if table.chunks > 1 else 0,
            "microbatch": table.microbatches,
        }
        texts = [_counted(count, noun) for noun, count in sizes.items() if count]
        letters = [kind for kind in KINDS if kind in self.kinds] + ["P"] * bool(costs.P)
        prices = " ".join(f"{letter}={getattr(costs, letter):g}" for letter in letters)
        return f"{self.name}: {', '.join(texts)}; {prices}"

    @property
    def chunk_size(self) -> float:
        """The fraction of a device's layers that one chunk holds."""
        return 1 / self.simulation.table.chunks

    @property
    def heading(self) -> str:
        """The heading above the activations in flight."""
        chunks = self.simulation.table.chunks
        unit = f", in chunks ({chunks} are a whole device)" if chunks > 1 else ""
        return f"activations in flight{unit}"

    @cached_property
    def kinds(self) -> set[str]:
        """The kinds of its actions."""
        return {action.kind for action in self.simulation.table.places}

    @cached_property
    def cells(self) -> list[list[Cell]]:
        """What to draw for each device; actions that cost nothing have no width."""
        return [
            [cell for action in row if action and (cell := self._cell(action)).duration]
            for row in self.simulation.table.rows
        ]

    def in_flight(self, device: int) -> Iterator[tuple[Number, int]]:
        """The times at which the number of activations in flight changes, and that number."""
        changes: dict[Number, int] = {}
        for action in self.simulation.table.rows[device]:
            if action and action.kind != "I":
                forward = action.kind == "F"
                time = (self.simulation.starts if forward else self.simulation.ends)[action]
                changes[time] = changes.get(time, 0) + (1 if forward else -1)
        return zip(changes, accumulate(changes.values()), strict=True)

    def _cell(self, action: Action) -> Cell:
        later = self._chunks[action.stage] > 0
        letter = action.kind.lower() if later else action.kind
        short = f"{letter}{action.microbatch}"
        return Cell(
            action,
            self.simulation.starts[action],
            self.simulation.ends[action],
            lighter(COLOURS[action.kind]) if later else COLOURS[action.kind],
            (str(action) if self.simulation.table.chunks > 1 else short, short, letter),
        )

    @cached_property
    def _chunks(self) -> dict[int, int]:
        """For each stage how many earlier stages its device has."""
        devices: list[int] = []
        chunks: dict[int, int] = {}
        for stage, device in sorted(self.simulation.table.stage_devices.items()):
            chunks[stage] = devices.count(device)
            devices.append(device)
        return chunks


@dataclass(frozen=True)
class Timeline:
    """Schedules one above the other on one time scale, each above its activations in flight."""

    tracks: tuple[Track, ...]

    def __post_init__(self) -> None:
        for track in self.tracks:
            if not track.simulation.makespan:
                raise ValueError(
                    f"Timeline: the cells of {track.name} take no time; a cell is as wide as it "
                    "takes time; give F or B a cost above 0"
                )

    @property
    def makespan(self) -> Number:
        """The makespan of the longest schedule."""
        return max(track.simulation.makespan for track in self.tracks)

    @property
    def peak(self) -> float:
        """The most activations in flight on any device, in whole devices."""
        return max(max(track.simulation.peak_in_flight) * track.chunk_size for track in self.tracks)

    @property
    def cells(self) -> list[Cell]:
        """All cells of all schedules."""
        return [cell for track in self.tracks for row in track.cells for cell in row]

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The letter and the meaning of each kind of cell, in the order of the grammar."""
        kinds = set[str]().union(*(track.kinds for track in self.tracks))
        return [(kind, meaning) for kind, meaning in KINDS.items() if kind in kinds]

    @property
    def chunks(self) -> int:
        """The most stages on one device."""
        return max(track.simulation.table.chunks for track in self.tracks)

    def lines(self, width: int) -> Iterator[Line]:
        """The timeline in at most `width` columns of a terminal.

        Where there is too little room, the cells lose their numbers or the end is cut off, and a
        note says so.
        """
        scale = Scale(self, width)
        for track in self.tracks:
            yield from _track_lines(track, scale, self.peak)
            yield Line()
        yield _legend_line(self)
        for note in scale.notes():
            yield Line().append(note)

    def to_rich(self, width: int = 80) -> Text:
        """The timeline as `lines`, for a terminal."""
        from rich.text import Text

        return Text("\n").join(Text.assemble(*line.parts) for line in self.lines(width))

    def to_text(self, width: int = 80) -> str:
        """The timeline as lines without colour."""
        return "\n".join(line.plain for line in self.lines(width))

    def to_svg(self) -> str:
        """The timeline as an SVG file.

        Its cells are wide enough for their labels, unless that makes too wide a file.
        """
        widest = max(
            (CHARACTER * len(cell.labels[0]) + PADDING) / cell.duration for cell in self.cells
        )
        scale = min(widest, MOST_WIDTH / self.makespan)
        parts, top = [], MARGIN
        for track in self.tracks:
            track_parts, top = _track_svg(track, scale, self.peak, top)
            parts += track_parts
        parts += _legend_svg(self, top)
        titles = max(len(track.title) for track in self.tracks)
        width = NAMES + self.makespan * scale + 60
        width = 2 * MARGIN + max(width, KEY_WIDTH * (len(self.legend) + 1), 9 * titles)
        return elements.document(width, top + 2 * LINE + MARGIN, parts)

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows


class Scale:
    """How times become columns of a terminal.

    Attributes:
        names: The width of the names of devices, at the left.
        columns: The width that is left for the schedule.
        form: Which label a cell has: FULL, NUMBERED, or LETTER.
    """

    def __init__(self, timeline: Timeline, width: int) -> None:
        devices = max(track.simulation.table.devices for track in timeline.tracks)
        self.names = len(f"device {devices - 1}  ")
        self._makespan, self._chunks = timeline.makespan, timeline.chunks
        self.columns = max(width - self.names, 1)
        cells = timeline.cells
        least = [max(len(cell.labels[form]) / cell.duration for cell in cells) for form in range(3)]
        self._numbered = least[NUMBERED]
        for form, per_time in enumerate(least):
            self.form, self._per_time = form, per_time
            if self(self._makespan) <= self.columns:
                break
        else:
            self.form, self._per_time = NUMBERED, least[NUMBERED]
        if self.form == LETTER:  # as wide as possible: a whole number of columns for each cell
            fit = self.columns / self._makespan
            self._per_time *= max(math.floor(fit / self._per_time), 1)

    def __call__(self, time: Number) -> int:
        """The column at which `time` stands."""
        return math.floor(time * self._per_time + 0.5)

    def time(self, column: float) -> float:
        """The time that stands at `column`."""
        return column / self._per_time

    def label(self, cell: Cell, room: int) -> str:
        """The longest label that fits."""
        first = FULL if self.form == FULL else NUMBERED
        return next((text for text in cell.labels[first:] if len(text) <= room), "")

    def notes(self) -> Iterator[str]:
        """Says how to read the labels, and what did not fit into the width."""
        if self._chunks > 1 and self.form == FULL:
            yield "4F0 is stage 4, forward, microbatch 0. Lighter: a later chunk."
        elif self._chunks > 1:
            yield "F0 is the forward of microbatch 0. Small letter, lighter: a later chunk."
        else:
            yield "F0 is the forward of microbatch 0."
        needed = self.names + math.ceil(self._makespan * self._numbered)
        shown = self.time(self.columns)
        if self.form == LETTER:
            yield f"Too narrow for every number: {needed} columns, or an SVG file, show them."
        elif shown < self._makespan:
            times = f"{shown:.3g} of {self._makespan:g}"
            yield f"Cut at time {times}: {needed} columns, or an SVG file, show the rest."


def lighter(colour: str) -> str:
    """The colour half way between this one and white."""
    return "#" + "".join(f"{(int(colour[i : i + 2], 16) + 256) // 2:02X}" for i in (1, 3, 5))


def _counted(count: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{count} {noun if count == 1 else plural}"


def _track_lines(track: Track, scale: Scale, peak: float) -> Iterator[Line]:
    end = min(scale(track.simulation.makespan), scale.columns)
    yield Line().append(track.title, "bold")
    yield Line().append(_ruler_line(track.simulation.makespan, scale), "dim")
    for device, cells in enumerate(track.cells):
        line = Line().append(f"device {device}".ljust(scale.names))
        line.parts += _cells_line(cells, scale, end).parts
        yield line
    yield Line().append(track.heading, "dim")
    for device, most in enumerate(track.simulation.peak_in_flight):
        line = Line().append(f"most {most}".ljust(scale.names))
        yield line.append(_heights_line(track, device, scale, end, peak), "#999999")


def _ruler_line(until: Number, scale: Scale) -> str:
    line = "time".ljust(scale.names)
    for time in round_numbers(0, until, scale.time(8)):
        text = f"{time:g}"
        if scale(time) + len(text) <= scale.columns:
            line = line.ljust(scale.names + scale(time)) + text
    return line


def _cells_line(cells: list[Cell], scale: Scale, end: int) -> Line:
    line = Line()
    for cell in cells:
        start, stop = min(scale(cell.start), end), min(scale(cell.end), end)
        line.append(IDLE * (start - len(line)), "dim")
        label = scale.label(cell, stop - start)
        line.append(label, f"{BLACK} on {cell.colour}")
        # The fill has the colour of the cell, so it is visible only where there is no colour.
        fill = FILL * (stop - start - len(label))
        line.append(fill, f"{cell.colour} on {cell.colour}")
    line.append(IDLE * (end - len(line)), "dim")
    return line


def _heights_line(track: Track, device: int, scale: Scale, end: int, peak: float) -> str:
    steps = [*track.in_flight(device), (math.inf, 0)]
    kept, place, line = 0, 0, ""
    for column in range(end):
        while steps[place][0] <= scale.time(column + 0.5):
            kept = steps[place][1]
            place += 1
        line += HEIGHTS[math.ceil(kept * track.chunk_size / peak * (len(HEIGHTS) - 1))]
    return line


def _legend_line(timeline: Timeline) -> Line:
    line = Line()
    for kind, meaning in timeline.legend:
        line.append(kind, f"{BLACK} on {COLOURS[kind]}").append(f" {meaning}   ")
    return line.append(f"{IDLE} idle")


def _track_svg(track: Track, scale: float, peak: float, top: int) -> tuple[list[str], int]:
    """The SVG elements of one schedule, and the y coordinate at which the next one begins."""
    left, makespan = MARGIN + NAMES, track.simulation.makespan
    width, devices = makespan * scale, track.simulation.table.devices
    parts = [elements.text(MARGIN, top + 16, track.title, **HEADING)]
    top += 44
    parts.append(elements.text(MARGIN, top, "time", fill=GREY))
    for time in round_numbers(0, makespan, 60 / scale):
        x = left + time * scale
        parts.append(elements.text(x, top, f"{time:g}", fill=GREY, text_anchor="middle"))
        parts.append(element("line", x1=x, y1=top + 4, x2=x, y2=top + 10, stroke=GREY))
    top += 12
    for device, cells in enumerate(track.cells):
        parts.append(elements.text(MARGIN, top + 19, f"device {device}"))
        parts.append(box(left, top, width, ROW, fill=EMPTY, stroke=GREY))
        parts += (_cell_svg(cell, left, top, scale) for cell in cells)
        top += ROW
    if not track.runs:
        return parts, top + GAP
    parts.append(elements.text(MARGIN, top + 22, track.heading, fill=GREY))
    top += 30
    for device in range(devices):
        parts.append(elements.text(MARGIN, top + STRIP - 4, f"device {device}"))
        parts.append(_in_flight_svg(track, device, scale, peak, top + STRIP))
        most = f"most {track.simulation.peak_in_flight[device]}"
        parts.append(elements.text(left + width + 8, top + STRIP - 4, most))
        top += STRIP + 4
    return parts, top + GAP


def _cell_svg(cell: Cell, left: int, top: int, scale: float) -> str:
    x, width = left + cell.start * scale, cell.duration * scale
    parts = [box(x, top, width, ROW, fill=cell.colour, stroke=INK, stroke_width=0.8)]
    label = next((text for text in cell.labels if CHARACTER * len(text) <= width), "")
    if label:
        parts.append(elements.text(x + width / 2, top + 19, label, text_anchor="middle"))
    return element("g", *parts, **{"class": "cell", "data_cell": cell.action})


def _in_flight_svg(track: Track, device: int, scale: float, peak: float, bottom: int) -> str:
    """The number of activations in flight, as a filled step curve."""
    left, unit = MARGIN + NAMES, (STRIP - 2) * track.chunk_size / peak
    path = f"M{left} {bottom}"
    for time, kept in track.in_flight(device):
        path += f"H{left + time * scale:.1f}V{bottom - kept * unit:.1f}"
    path += f"H{left + track.simulation.makespan * scale:.1f}"
    return element("path", d=path, fill="#CCCCCC", stroke=INK, stroke_width=1.2)


def _legend_svg(timeline: Timeline, top: int) -> Iterator[str]:
    keys = [(COLOURS[kind], f"{kind}: {meaning}") for kind, meaning in timeline.legend]
    x = MARGIN
    for colour, meaning in (*keys, (EMPTY, "idle")):
        yield box(x, top, KEY, KEY, fill=colour, stroke=INK, stroke_width=0.8)
        yield elements.text(x + KEY + 8, top + 16, meaning)
        x += KEY_WIDTH
    reading = "F0 is the forward of microbatch 0."
    if timeline.chunks > 1:
        reading = f"{reading[:-1]}, 4F0 that on stage 4. Lighter: a device's later chunks."
    yield elements.text(MARGIN, top + KEY + LINE, reading)
