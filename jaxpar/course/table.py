"""Tables of lessons: made of columns of values, and as a part of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from jaxpar.drawing.pages import render


def make_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table whose numbers are aligned, and have equally many decimals within a column."""
    columns = list(zip(*rows, strict=True))
    made = Table(box=box.SIMPLE_HEAD)
    for header, column in zip(headers, columns, strict=True):
        numeric = all(isinstance(value, int | float) for value in column)
        made.add_column(header, justify="right" if numeric else "left")
    for row in zip(*map(_cells, columns), strict=True):
        made.add_row(*row)
    return made


def html_table(title: str, table: Table) -> str:
    """A table as a part of a page, with its title as its caption."""
    columns = table.columns
    return render(
        "jaxpar.course",
        "table.html",
        title=title,
        headers=[_text(column.header) for column in columns],
        rows=list(zip(*(map(_text, column.cells) for column in columns), strict=True)),
        sides=[column.justify for column in columns],
    )


def _cells(column: Sequence[object]) -> list[str]:
    """Returns a column as text; all numbers have as many decimals as the one with the most."""
    floats = (value for value in column if isinstance(value, float) and not value.is_integer())
    decimals = max((len(str(value).partition(".")[2]) for value in floats), default=0)
    return [
        f"{value:,.{decimals}f}" if isinstance(value, int | float) else str(value)
        for value in column
    ]


def _text(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
