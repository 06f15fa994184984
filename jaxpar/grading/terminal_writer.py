"""A verdict in the tables and colours of a terminal; `writers` says it in plain lines."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from jaxpar.grading.findings import NOT_JUDGED
from jaxpar.grading.verdict import PropertyVerdict, Verdict
from jaxpar.grading.writers import (
    failure_lines,
    first_line,
    headline,
    measured_rows,
    new_best,
    title_of,
    without_values,
)

STYLES = {"pass": "green", "fail": "bold red"}
CELL = 30
REASONS = {
    NOT_JUDGED["values"]: "not judged until values are right",
    NOT_JUDGED["order"]: "not judged until the order is right",
}


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
        parts += [Text(), Text(title_of(verdict.measured)), Text(numbers)]
        if line := new_best(verdict, best):
            parts += [Text(line, style="bold green")]
    if verdict.printed:
        parts += [Text(), Text("your program printed"), Padding(Text(verdict.printed), (0, 2))]
        parts += map(Text, without_values(verdict))
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
    return first_line(row.expected), first_line(row.got or message)


def _under_table(verdict: Verdict) -> Iterator[str]:
    """Yields what did not fit into the table, and what was not judged."""
    waiting: dict[str, list[str]] = {}
    for row in verdict.properties:
        if row.status == "not-judged":
            waiting.setdefault(REASONS.get(row.message, row.message), []).append(row.name)
        elif row != verdict.first_failure() and max(map(len, _cells(verdict, row))) > CELL:
            yield f"{row.name}: {first_line(row.message)}"
    for reason, names in waiting.items():
        yield f"{reason}: {', '.join(names)}"
