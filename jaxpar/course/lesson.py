"""What lessons print with: source code, tables, and their exercises; and how a lesson is run."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from jaxpar.course.catalog import lesson
from jaxpar.inspector import Report, render

WIDTH = 100


def show(function: Callable[..., Any]) -> None:
    """Prints the source of a function: what is printed is what runs."""
    print(f"# {function.__module__.replace('.', '/')}.py\n{inspect.getsource(function)}")


def table(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table; numbers are set to the right, with commas."""
    shown = Table(box=box.SIMPLE_HEAD)
    rows = [tuple(row) for row in rows]
    for place, header in enumerate(headers):
        numbers = all(isinstance(row[place], int | float) for row in rows)
        shown.add_column(header, justify="right" if numbers else "left")
    for row in rows:
        shown.add_row(*(_cell(value) for value in row))
    _console().print(Text(title, "bold"), shown)


def show_report(report: Report) -> None:
    """Prints what the inspector found."""
    _console().print(render(report))


def exercises(number: str) -> None:
    """Prints what the lesson asks the reader to write."""
    rows = [(row.id, row.title, row.minutes, row.file) for row in lesson(number).asks]
    table(f"Exercises of lesson {number}", ("exercise", "what", "minutes", "file"), rows)


def run_lesson(path: Path) -> None:
    """Runs a lesson cell by cell, its prose printed in between."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    for kind, start, lines in _cells(path.read_text(encoding="utf-8").splitlines()):
        if kind == "markdown":
            prose = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
            _console().print(Markdown(prose), "")
        else:  # the blank lines give errors and the inspector the line numbers of the file
            exec(compile("\n" * start + "\n".join(lines), path, "exec"), namespace)


def _cells(lines: Sequence[str]) -> Iterator[tuple[str, int, Sequence[str]]]:
    """The kind of each cell, the number of lines before it, and its lines."""
    marks = [place for place, line in enumerate(lines) if line.startswith("# %%")]
    for mark, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        kind = "markdown" if lines[mark].endswith("[markdown]") else "code"
        yield kind, mark + 1, lines[mark + 1 : end]


def _cell(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _console() -> Console:
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


if __name__ == "__main__":
    run_lesson(Path(sys.argv[1]))
