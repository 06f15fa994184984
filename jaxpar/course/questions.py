"""Questions of a lesson that are answered by a number, and compared with what was measured.

In a terminal the reader types the number; elsewhere, or with Enter alone, there is none, and only
the right one is printed when the lesson comes to it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from jaxpar.course.keyboard import is_interactive
from jaxpar.course.output import output
from jaxpar.course.pager import Page, ReaderLeft
from jaxpar.course.prediction import Kind, parse_quantity
from jaxpar.inspector.report import Report

RIGHT = 0.03
"""How far a prediction may be from what is measured, relative to it: scalars are not counted."""
SCALES: dict[Kind, dict[str, float]] = {
    "bytes": {" TB": 1e12, " GB": 1e9, " MB": 1e6, " bytes": 1},
    "seconds": {" s": 1, " ms": 1e-3, " us": 1e-6},
    "count": {"": 1},
}


@dataclass(frozen=True)
class Question:
    """A question, and the reader's answer to it.

    Attributes:
        text: the question, without a question mark.
        kind: what its answer counts.
        typed: what the reader typed; None if nothing.
    """

    text: str
    kind: Kind
    typed: float | None

    def compare(self, measured: float, parts: Mapping[str, float] | None = None) -> None:
        """Shows what was predicted and what is right; on a miss, what the latter is made of.

        Args:
            measured: the right answer, in bytes, seconds or things.
            parts: its parts by name, which add up to it.
        """
        named = {name: in_words(part, self.kind) for name, part in (parts or {}).items()}
        lines = [f"{self.text}: {in_words(measured, self.kind)}."]
        if self.typed is not None and abs(self.typed - measured) <= RIGHT * measured:
            lines[0] += " You predicted it."
        else:
            if self.typed is not None:
                ratio = f", {_ratio(self.typed / measured)}" if measured else ""
                lines[0] += f" You predicted {in_words(self.typed, self.kind)}{ratio}."
            lines += [f"    {part:>12}  {name}" for name, part in named.items()]
        output().answer(self.text, measured, named, "\n".join(lines))


def ask(text: str, kind: Kind = "bytes") -> Question:
    """Asks for a number, and asks again for what is no number.

    Raises:
        ReaderLeft: the reader typed q, Ctrl-C or Ctrl-D.
    """
    output().question(text, kind)
    while is_interactive():
        line = _read_line(f"{kind}, or Enter to skip: ").strip()
        if line.lower() == "q":
            raise ReaderLeft
        if not line:
            break
        try:
            return Question(text, kind, float(parse_quantity(line, kind)))
        except ValueError as error:
            print(error)
    return Question(text, kind, None)


def sent_by(report: Report) -> dict[str, float]:
    """What a device sends in a program, by collective and axes, in bytes on the wire."""
    found: dict[str, float] = {}
    for one in report.collectives:
        name = f"{one.kind.replace('_', '-')} over {', '.join(one.axes) or 'no axis'}"
        found[name] = found.get(name, 0) + (one.total_wire_bytes or 0)
    return found


def in_words(quantity: float, kind: Kind) -> str:
    """A quantity with the largest unit of which it is at least one: `1.79 MB`."""
    units = SCALES[kind]
    unit = next((unit for unit, size in units.items() if quantity >= size), [*units][-1])
    scaled = quantity / units[unit]
    whole = scaled >= 1000 or float(scaled).is_integer()
    return f"{scaled:,.0f}{unit}" if whole else f"{scaled:.3g}{unit}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.3g} times as much" if ratio > 1 else f"{ratio:.2g} of it"


def _read_line(prompt: str) -> str:
    page = sys.stdout
    return page.ask(prompt) if isinstance(page, Page) else input(prompt)
