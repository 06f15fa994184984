"""Compares two reports that `jaxpar inspect --json` has written, figure by figure."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from jaxpar.inspector.report import Collective, Memory, Report

Figures = Mapping[str, float]
_HEAD = ("", "before", "after", "change")
_PREFIXES = (("T", 10**12), ("G", 10**9), ("M", 10**6))


@dataclass(frozen=True)
class Change:
    """A figure that differs between two reports; infinite in one that does not know it."""

    figure: str
    before: float
    after: float

    @property
    def rose(self) -> bool:
        """Whether the second report has more of it."""
        return self.after > self.before

    def to_dict(self) -> Mapping[str, object]:
        """Returns the change as values that JSON can hold; None is not known."""
        before, after = (
            None if value == math.inf else value for value in (self.before, self.after)
        )
        return {"figure": self.figure, "before": before, "after": after, "rose": self.rose}


def read_figures(path: Path) -> Figures:
    """Reads a report that `jaxpar inspect --json` has written, and returns its figures by name.

    Raises:
        ValueError: The file cannot be read, or holds something else.
    """
    try:
        return _figures(_report(json.loads(path.read_text(encoding="utf-8"))))
    except OSError as error:
        raise ValueError(f"inspect: {path}: {error.strerror}; give the file of a report") from None
    except (ValueError, TypeError, LookupError):
        raise ValueError(
            f"inspect: {path} holds no report; write one with "
            "`jaxpar inspect FILE:FUNCTION --json > FILE.json`"
        ) from None


def compare(before: Figures, after: Figures) -> list[Change]:
    """Returns the figures that differ; one that a report does not have is 0 there."""
    names = dict.fromkeys((*before, *after))
    pairs = (Change(name, before.get(name, 0), after.get(name, 0)) for name in names)
    return [pair for pair in pairs if pair.before != pair.after]


def table(changes: Sequence[Change]) -> Iterator[str]:
    """Yields the lines of a table, in the form that GitHub reads too, and how many figures rose."""
    if not changes:
        yield "Nothing changed."
        return
    rows = [_HEAD, *map(_row, changes)]
    name, *numbers = (max(map(len, column)) for column in zip(*rows, strict=True))
    rows.insert(1, ("-" * name, *("-" * (width - 1) + ":" for width in numbers)))
    for first, *cells in rows:
        padded = (cell.rjust(width) for cell, width in zip(cells, numbers, strict=True))
        yield f"| {first.ljust(name)} | {' | '.join(padded)} |"
    rose = sum(change.rose for change in changes)
    yield ""
    yield f"Rose: {rose}. Fell: {len(changes) - rose}."


def _report(data: Mapping) -> Report:
    memory = data["memory"]
    return Report(
        tuple(Collective(**one) for one in data["collectives"]),
        data["flops"],
        memory and Memory(**{field.name: memory[field.name] for field in fields(Memory)}),
    )


def _figures(report: Report) -> Figures:
    """The figures that a change may raise: outputs in place of arguments lower the total."""
    figures: dict[str, float] = {}
    for part in ("arguments", "outputs", "temp", "constants", "total"):
        held = report.memory and getattr(report.memory, f"{part}_bytes")
        figures[f"{part}: bytes"] = _known(held)
    figures["flops"] = _known(report.flops)
    for one in report.collectives:
        for unit, number in (("times", one.times), ("bytes", one.total_wire_bytes)):
            name = f"{one.kind} over {', '.join(one.axes)}: {unit}"
            figures[name] = figures.get(name, 0) + _known(number)
    return figures


def _known(value: float | None) -> float:
    return math.inf if value is None else round(value, 2)


def _row(change: Change) -> tuple[str, str, str, str]:
    before, after = change.before, change.after
    if math.inf in (before, after):
        difference = "?"
    elif 0 in (before, after):
        difference = "gone" if before else "new"
    else:
        difference = f"{(after - before) / before:+,.1%}"
    return change.figure, _number(before), _number(after), difference


def _number(value: float) -> str:
    if value == math.inf:
        return "?"
    for prefix, size in _PREFIXES:
        if value >= 10 * size:
            return f"{value / size:,.1f} {prefix}"
    return f"{value:,.1f}".removesuffix(".0")
