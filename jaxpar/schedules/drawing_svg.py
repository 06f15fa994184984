"""Schedules drawn as a self-contained SVG file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from jaxpar.schedules.drawing import COLOURS, Cell, Drawing, Track, ruler
from jaxpar.schedules.simulator import Number

MARGIN, NAMES = 24, 90
ROW, STRIP, GAP, LINE = 28, 28, 26, 22
CHARACTER, PADDING, MOST_WIDTH = 8, 12, 8000
INK, GREY = "#222", "#666"
KEY, KEY_WIDTH = 22, 200


def draw(drawing: Drawing) -> str:
    """The file's text. Cells are wide enough for their labels, unless that is too wide a file."""
    cells = drawing.cells
    widest = max((CHARACTER * len(cell.labels[0]) + PADDING) / cell.duration for cell in cells)
    scale = min(widest, MOST_WIDTH / drawing.makespan)
    parts, top = [], MARGIN
    for track in drawing.tracks:
        track_parts, top = _track(track, scale, drawing.peak, top)
        parts += track_parts
    parts += _legend(drawing, top)
    titles = max(len(track.title) for track in drawing.tracks)
    width = NAMES + drawing.makespan * scale + 60
    width = 2 * MARGIN + max(width, KEY_WIDTH * (len(drawing.legend) + 1), 9 * titles)
    return SVG.format(width=round(width), height=top + 2 * LINE + MARGIN, body="\n".join(parts))


def _track(track: Track, scale: float, peak: float, top: int) -> tuple[list[str], int]:
    """What one schedule looks like, and where it ends."""
    left, makespan = MARGIN + NAMES, track.simulation.makespan
    width, devices = makespan * scale, track.simulation.table.devices
    parts = [_text(MARGIN, top + 16, track.title, 'font-size="18" font-weight="bold"')]
    top += 44
    parts.append(_text(MARGIN, top, "time", f'fill="{GREY}"'))
    for time in ruler(makespan, 60 / scale):
        x = left + time * scale
        parts.append(_text(x, top, f"{time:g}", f'fill="{GREY}" text-anchor="middle"'))
        parts.append(_line(x, top + 4, x, top + 10))
    top += 12
    for device, cells in enumerate(track.cells):
        parts.append(_text(MARGIN, top + 19, f"device {device}"))
        parts.append(_box(left, top, width, ROW, "#EEEEEE", f'stroke="{GREY}"'))
        parts += (part for cell in cells for part in _cell(cell, left, top, scale))
        top += ROW
    parts.append(_text(MARGIN, top + 22, track.heading, f'fill="{GREY}"'))
    top += 30
    for device in range(devices):
        parts.append(_text(MARGIN, top + STRIP - 4, f"device {device}"))
        parts.append(_in_flight(track, device, scale, peak, top + STRIP))
        most = f"most {track.simulation.peak_in_flight[device]}"
        parts.append(_text(left + width + 8, top + STRIP - 4, most))
        top += STRIP + 4
    return parts, top + GAP


def _cell(cell: Cell, left: int, top: int, scale: float) -> Iterator[str]:
    x, width = left + cell.start * scale, cell.duration * scale
    yield _box(x, top, width, ROW, cell.colour, f'stroke="{INK}" stroke-width="0.8"')
    label = next((text for text in cell.labels if CHARACTER * len(text) <= width), "")
    if label:
        yield _text(x + width / 2, top + 19, label, 'text-anchor="middle"')


def _in_flight(track: Track, device: int, scale: float, peak: float, bottom: int) -> str:
    """How many there are, as a line of steps over a filled area."""
    left, unit = MARGIN + NAMES, (STRIP - 2) * track.share / peak
    path = f"M{left} {bottom}"
    for time, kept in track.in_flight(device):
        path += f"H{left + time * scale:.1f}V{bottom - kept * unit:.1f}"
    path += f"H{left + track.simulation.makespan * scale:.1f}"
    return f'<path d="{path}" fill="#CCCCCC" stroke="{INK}" stroke-width="1.2"/>'


def _legend(drawing: Drawing, top: int) -> Iterator[str]:
    keys = [(COLOURS[kind], f"{kind}: {meaning}") for kind, meaning in drawing.legend]
    x: Number = MARGIN
    for colour, text in (*keys, ("#EEEEEE", "idle")):
        yield _box(x, top, KEY, KEY, colour, f'stroke="{INK}" stroke-width="0.8"')
        yield _text(x + KEY + 8, top + 16, text)
        x += KEY_WIDTH
    reading = "F0 is the forward of microbatch 0."
    if drawing.chunks > 1:
        reading = f"{reading[:-1]}, 4F0 that on stage 4. Lighter: a device's later chunks."
    yield _text(MARGIN, top + KEY + LINE, reading)


def _box(x: float, y: float, width: float, height: float, fill: str, more: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
        f"{more}/>"
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{GREY}"/>'


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="13">
<rect width="100%" height="100%" fill="#FFFFFF"/>
{body}
</svg>
"""
