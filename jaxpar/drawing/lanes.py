"""The pieces of a step over time: a lane for computing, one for the network, one below the other.

Several ways to do the same step are drawn to one scale, so that the shorter one is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from jaxpar.drawing import elements
from jaxpar.drawing.elements import (
    CHARACTER,
    GREY,
    HEADING,
    box,
    element,
    letter,
    part,
    round_numbers,
    titled,
)
from jaxpar.schedules.overlap import COMPUTE, Span, exposed_seconds, step_seconds

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
TEXT_COLUMNS = 72
IDLE, FILL, END = ".", "-", "|"

# Sizes in an SVG file, in pixels.
MARGIN, TOP, NAMES, WIDTH = 24, 62, 90, 760
LANE, GAP, AXIS, KEY_ROW = 30, 36, 34, 22


@dataclass(frozen=True)
class Lanes:
    """Ways to do one step, each with its lanes, to one scale; a kind of task has one colour.

    Attributes:
        title: What the step is.
        unit: "s", "ms" or "us".
        ways: The name of each way, and when its pieces run.
    """

    title: str
    unit: str
    ways: Mapping[str, Sequence[Span]]

    def to_text(self) -> str:
        """The lanes as lines of a terminal."""
        lines = titled(self.title)
        room = max(map(len, self._lanes()))
        for name, spans in self.ways.items():
            lines.append(f"{name}: {self._facts(spans)}")
            for lane in self._lanes():
                cells = self._text_lane([span for span in spans if span.task.lane == lane])
                lines.append(f"{lane:>{room}} {cells}")
            lines.append("")
        names = (f"{letter(number)}  {kind}" for number, kind in enumerate(self._kinds()))
        return "\n".join([*lines, *names])

    def to_svg(self) -> str:
        """The lanes as an SVG file; a box shows its task and its times under the pointer."""
        parts = [elements.text(MARGIN, MARGIN + 12, self.title, **HEADING)]
        top, lanes = TOP, self._lanes()
        for name, spans in self.ways.items():
            parts.append(elements.text(MARGIN, top + 14, f"{name}: {self._facts(spans)}"))
            top += 22
            for place, lane in enumerate(lanes):
                y = top + place * LANE
                parts.append(elements.text(MARGIN, y + 20, lane))
                parts += self._svg_lane([span for span in spans if span.task.lane == lane], y)
            top += LANE * len(lanes) + GAP
        parts += self._svg_axis(top - GAP + 8)
        top += AXIS
        for number, kind in enumerate(self._kinds()):
            y = top + KEY_ROW * number
            parts.append(part(number, MARGIN, y, 30, 16))
            parts.append(elements.text(MARGIN + 40, y + 13, kind))
        height = top + KEY_ROW * len(self._kinds()) + MARGIN
        return elements.document(2 * MARGIN + NAMES + WIDTH, height, parts)

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows

    def _lanes(self) -> list[str]:
        """The lane of arithmetic, if there is one, then the others."""
        lanes = (span.task.lane for spans in self.ways.values() for span in spans)
        return sorted(dict.fromkeys(lanes), key=lambda lane: lane != COMPUTE)

    def _kinds(self) -> list[str]:
        return list(dict.fromkeys(span.task.kind for spans in self.ways.values() for span in spans))

    def _longest(self) -> float:
        return max(map(step_seconds, self.ways.values()))

    def _facts(self, spans: Sequence[Span]) -> str:
        if COMPUTE not in self._lanes():
            return self._in_unit(step_seconds(spans))
        waits = f", of which {COMPUTE} waits {self._in_unit(exposed_seconds(spans))}"
        return f"{self._in_unit(step_seconds(spans))}{waits}"

    def _in_unit(self, seconds: float) -> str:
        return f"{seconds / UNITS[self.unit]:,.3g} {self.unit}"

    def _text_lane(self, spans: Sequence[Span]) -> str:
        """A box begins with the letter of its kind and its label, as far as there is room.

        What is shorter than a column has the letter alone.
        """
        scale = TEXT_COLUMNS / self._longest()
        cells = [IDLE] * TEXT_COLUMNS
        for span in spans:
            start = min(round(span.start * scale), TEXT_COLUMNS - 1)
            end = max(round(span.end * scale), start + 1)
            name = letter(self._kinds().index(span.task.kind))
            words = f"{name} {span.task.label}"
            text = words if len(words) < end - start else name
            cells[start:end] = f"{text:{FILL}<{end - start - 1}}{END}"[: end - start]
        return "".join(cells).rstrip(IDLE)

    def _svg_lane(self, spans: Sequence[Span], top: int) -> Iterator[str]:
        left, scale = MARGIN + NAMES, WIDTH / self._longest()
        yield box(left, top, WIDTH, LANE - 4, fill="#EEEEEE")
        for span in spans:
            x, width = left + span.start * scale, (span.end - span.start) * scale
            task = span.task
            from_to = f"{self._in_unit(span.start)} to {self._in_unit(span.end)}"
            title = element("title", escape(f"{task.kind}, {task.label}: {from_to}"))
            yield part(self._kinds().index(task.kind), x, top, width, LANE - 4, title)
            if CHARACTER * len(task.label) < width:
                yield elements.text(x + width / 2, top + 18, task.label, text_anchor="middle")

    def _svg_axis(self, top: int) -> Iterator[str]:
        longest = self._longest() / UNITS[self.unit]
        left = MARGIN + NAMES
        line = {"stroke": GREY}
        yield element("line", x1=left, y1=top, x2=left + WIDTH, y2=top, **line)
        for number in round_numbers(0, longest, longest / 10):
            x = left + number / longest * WIDTH
            yield element("line", x1=x, y1=top, x2=x, y2=top + 5, **line)
            yield elements.text(x, top + 19, f"{number:.3g}", text_anchor="middle", fill=GREY)
        yield elements.text(MARGIN, top + 19, self.unit, fill=GREY)
