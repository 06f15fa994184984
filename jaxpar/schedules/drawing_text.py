"""Schedules drawn for a terminal, readable without colour too."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.text import Text

from jaxpar.schedules.drawing import COLOURS, Cell, Drawing, Track, ruler
from jaxpar.schedules.simulator import Number

IDLE, FILL = ".", "-"
# One row of heights from nothing up; the highest leaves room to the line above.
HEIGHTS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587"
# For a terminal that cannot show them.
ASCII = str.maketrans(HEIGHTS, " .:-=+*#")
FULL, NUMBERED, LETTER = range(3)
INK = "#000000"


def draw(drawing: Drawing, width: int) -> Text:
    """Draw it in at most `width` columns: smaller, without numbers, or cut, which it then says."""
    scale = Scale(drawing, width)
    lines: list[Text] = []
    for track in drawing.tracks:
        lines += [*_track(track, scale, drawing.peak), Text()]
    return Text("\n").join([*lines, _legend(drawing), *scale.notes()])


class Scale:
    """How times become columns.

    Attributes:
        names: The width of what stands before the columns.
        columns: The width of the whole that is drawn.
        form: Which label a cell has: FULL, NUMBERED, or LETTER.
    """

    def __init__(self, drawing: Drawing, width: int) -> None:
        devices = max(track.simulation.table.devices for track in drawing.tracks)
        self.names = len(f"device {devices - 1}  ")
        self._makespan, self._chunks = drawing.makespan, drawing.chunks
        self.columns = max(width - self.names, 1)
        cells = drawing.cells
        least = [max(len(cell.labels[form]) / cell.duration for cell in cells) for form in range(3)]
        self._numbered = least[NUMBERED]
        for form, per_time in enumerate(least):
            self.form, self._per_time = form, per_time
            if self(self._makespan) <= self.columns:
                break
        else:
            self.form, self._per_time = NUMBERED, least[NUMBERED]
        if self.form == LETTER:  # as large as it can be, in whole columns
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

    def notes(self) -> Iterator[Text]:
        """How the labels read, and what the width leaves out."""
        if self._chunks > 1 and self.form == FULL:
            yield Text("4F0 is stage 4, forward, microbatch 0. Lighter: a later chunk.")
        elif self._chunks > 1:
            yield Text("F0 is the forward of microbatch 0. Small letter, lighter: a later chunk.")
        else:
            yield Text("F0 is the forward of microbatch 0.")
        needed = self.names + math.ceil(self._makespan * self._numbered)
        shown = self.time(self.columns)
        if self.form == LETTER:
            yield Text(f"Too narrow for every number: {needed} columns, or an SVG file, show them.")
        elif shown < self._makespan:
            times = f"{shown:.3g} of {self._makespan:g}"
            yield Text(f"Cut at time {times}: {needed} columns, or an SVG file, show the rest.")


def _track(track: Track, scale: Scale, peak: float) -> Iterator[Text]:
    end = min(scale(track.simulation.makespan), scale.columns)
    yield Text(track.title, style="bold")
    yield Text(_ruler(track.simulation.makespan, scale), style="dim")
    for device, cells in enumerate(track.cells):
        line = Text(f"device {device}".ljust(scale.names))
        line.append_text(_row(cells, scale, end))
        yield line
    yield Text(track.heading, style="dim")
    for device, most in enumerate(track.simulation.peak_in_flight):
        line = Text(f"most {most}".ljust(scale.names))
        yield line.append(_heights(track, device, scale, end, peak), style="#999999")


def _ruler(until: Number, scale: Scale) -> str:
    line = "time".ljust(scale.names)
    for time in ruler(until, scale.time(8)):
        text = f"{time:g}"
        if scale(time) + len(text) <= scale.columns:
            line = line.ljust(scale.names + scale(time)) + text
    return line


def _row(cells: list[Cell], scale: Scale, end: int) -> Text:
    line = Text()
    for cell in cells:
        start, stop = min(scale(cell.start), end), min(scale(cell.end), end)
        line.append(IDLE * (start - len(line)), style="dim")
        label = scale.label(cell, stop - start)
        line.append(label, style=f"{INK} on {cell.colour}")
        # What fills the cell up shows where there is no colour.
        fill = FILL * (stop - start - len(label))
        line.append(fill, style=f"{cell.colour} on {cell.colour}")
    line.append(IDLE * (end - len(line)), style="dim")
    return line


def _heights(track: Track, device: int, scale: Scale, end: int, peak: float) -> str:
    steps = [*track.in_flight(device), (math.inf, 0)]
    kept, place, line = 0, 0, ""
    for column in range(end):
        while steps[place][0] <= scale.time(column + 0.5):
            kept = steps[place][1]
            place += 1
        line += HEIGHTS[math.ceil(kept * track.share / peak * (len(HEIGHTS) - 1))]
    return line


def _legend(drawing: Drawing) -> Text:
    line = Text()
    for kind, meaning in drawing.legend:
        line.append(kind, style=f"{INK} on {COLOURS[kind]}").append(f" {meaning}   ")
    return line.append(f"{IDLE} idle")
