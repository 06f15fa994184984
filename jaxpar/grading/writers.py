"""A verdict as JSON, as plain lines, and as tables for a terminal.

These writers are for a learner; those for a class are in `jaxpar.classroom.reports`. A writer shows
what the verdict holds, and judges nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxpar.grading.findings import NOT_JUDGED
from jaxpar.grading.verdict import Measured, PropertyVerdict, Verdict

STYLES = {"pass": "green", "fail": "bold red"}
CELL, LINE = 30, 120
TITLES = {
    "wire_bytes": "what each device sends in one call, forward, on {}",
    "temp_bytes": "what intermediate results take, forward and backward, on {}",
    "makespan": "the makespan of {}",
}
NO_VALUES = (
    "An array has no value while a program is made of the function; `jaxpar run {}` shows values."
)
TRACER = re.compile(r"Tracer\(|Traced<")
REASONS = {
    NOT_JUDGED["values"]: "not judged until values are right",
    NOT_JUDGED["order"]: "not judged until the order is right",
}


def to_json(verdict: Verdict, best: int | None = None) -> dict[str, Any]:
    """Returns what `jaxpar check --json` prints; `best` is the lowest number reached."""
    return {
        "exercise": verdict.exercise,
        "status": verdict.status,
        "score": verdict.score,
        "max_score": verdict.max_score,
        "properties": [asdict(row) for row in verdict.properties],
        "diagnosis": verdict.diagnosis,
        "seconds": verdict.seconds,
        "measured": verdict.measured and asdict(verdict.measured),
        "best": best,
    }


def headline(verdict: Verdict) -> str:
    """Returns points, status, time and seed in one line."""
    return (
        f"{verdict.exercise}: {verdict.status}, {verdict.score} of {verdict.max_score} points "
        f"({verdict.seconds:.1f} s, seed {verdict.seed})"
    )


def failure_lines(verdict: Verdict, row: PropertyVerdict | None) -> list[str]:
    """Returns what a failed property says, then the diagnosis unless it says the same."""
    diagnosis = verdict.diagnosis.splitlines()
    if row is None:
        return diagnosis
    lines = [] if row.message == verdict.diagnosis else [f"{row.name}: {row.message}"]
    for word, value in (("expected", row.expected), ("got", row.got)):
        if value:
            lines += [f"  {word:<8}  {line}" for line in value.splitlines()]
    return [*lines, "", *diagnosis] if lines and diagnosis else lines + diagnosis


def measured_rows(
    measured: Measured, predicted: int | None, best: int | None
) -> list[tuple[str, str]]:
    """Returns a number: predicted, measured, by the library, and the learner's best before."""
    rows = (
        ("predicted", predicted if measured.quantity == "wire_bytes" else None),
        ("measured", measured.value),
        ("library", measured.library),
        ("your best", best if measured.challenge else None),
    )
    return [(word, measured.in_words(number)) for word, number in rows if number is not None]


def new_best(verdict: Verdict, best: int | None) -> str:
    """Returns that a right answer is lower than the learner's best before, or an empty text."""
    found = verdict.measured
    if not (verdict.passed and found and found.challenge and best is not None):
        return ""
    return f"Your best now: {found.in_words(found.value)}." if found.value < best else ""


def plain_lines(
    verdict: Verdict, predicted: int | None = None, best: int | None = None
) -> Iterator[str]:
    """Yields the lines of the verdict without colour or boxes.

    Args:
        verdict: the verdict.
        predicted: the bytes that the learner predicted, if any.
        best: the lowest number that the learner had reached before, if it is a challenge.
    """
    yield headline(verdict)
    for row in verdict.properties:
        note = f"  {_one_line(row.message)}".rstrip()
        yield f"  {row.status:<10}  {row.name:<13}  {row.score}/{row.max_score}{note}"
    if lines := failure_lines(verdict, verdict.first_failure()):
        yield from ("", *lines)
    if verdict.measured:
        yield from ("", _title(verdict.measured))
        for word, number in measured_rows(verdict.measured, predicted, best):
            yield f"  {word:<10} {number}"
        if line := new_best(verdict, best):
            yield line
    if verdict.printed:
        yield from ("", "your program printed")
        yield from (f"  {line}" for line in verdict.printed.splitlines())
        yield from _without_values(verdict)


def render(
    verdict: Verdict, predicted: int | None = None, best: int | None = None
) -> RenderableType:
    """The verdict for a terminal: what plain_lines says, in tables and colours."""
    parts: list[RenderableType] = [
        Text(headline(verdict), style="bold green" if verdict.passed else "bold red")
    ]
    if verdict.properties:
        parts += [Text(), _property_table(verdict), *map(Text, _under_table(verdict))]
    if lines := failure_lines(verdict, verdict.first_failure()):
        parts += [Text(), Text("\n".join(lines), style="yellow")]
    if verdict.measured:
        rows = measured_rows(verdict.measured, predicted, best)
        numbers = "".join(f"  {word} {number}" for word, number in rows)
        parts += [Text(), Text(_title(verdict.measured)), Text(numbers)]
        if line := new_best(verdict, best):
            parts += [Text(line, style="bold green")]
    if verdict.printed:
        parts += [Text(), Text("your program printed"), Padding(Text(verdict.printed), (0, 2))]
        parts += map(Text, _without_values(verdict))
    return Group(*parts)


def _property_table(verdict: Verdict) -> Table:
    """Returns the table of judged properties, without texts too long for a small terminal."""
    table = Table(pad_edge=False, box=None, header_style="underline")
    table.add_column("property", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("points", justify="right", no_wrap=True)
    table.add_column("expected")
    table.add_column("got")
    for row in verdict.properties:
        if row.status != "not-judged":
            cells = (Text(text if len(text) <= CELL else "") for text in _cells(verdict, row))
            status = Text(row.status, style=STYLES[row.status])
            table.add_row(row.name, status, f"{row.score}/{row.max_score}", *cells)
    return table


def _cells(verdict: Verdict, row: PropertyVerdict) -> tuple[str, str]:
    """Returns the texts of the last two columns; the first failure is told below the table."""
    message = "" if row == verdict.first_failure() else row.message
    return _first_line(row.expected), _first_line(row.got or message)


def _under_table(verdict: Verdict) -> Iterator[str]:
    """Yields what did not fit into the table, and what was not judged."""
    waiting: dict[str, list[str]] = {}
    for row in verdict.properties:
        if row.status == "not-judged":
            waiting.setdefault(REASONS.get(row.message, row.message), []).append(row.name)
        elif row != verdict.first_failure() and max(map(len, _cells(verdict, row))) > CELL:
            yield f"{row.name}: {_first_line(row.message)}"
    for reason, names in waiting.items():
        yield f"{reason}: {', '.join(names)}"


def _without_values(verdict: Verdict) -> Iterator[str]:
    """Yields where to see values, if the answer printed arrays that had none."""
    if TRACER.search(verdict.printed):
        yield NO_VALUES.format(verdict.exercise)


def _title(measured: Measured) -> str:
    return TITLES[measured.quantity].format(measured.case)


def _one_line(text: str) -> str:
    line = _first_line(text)
    return line if len(line) <= LINE else f"{line[:LINE]}..."


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
