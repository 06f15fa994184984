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
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from jaxpar.course.catalog import lesson
from jaxpar.inspector import Report, render

WIDTH = 100
YOUR_TURN = "Your turn"


def show(*functions: Callable[..., Any]) -> None:
    """Prints the source of functions: what is printed is what runs."""
    for function in functions:
        file = function.__module__.replace(".", "/")
        print(f"# {file}.py\n{inspect.getsource(function)}")


def table(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table; numbers stand to the right, with commas."""
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
    row = lesson(number)
    rows = [(one.id, one.title, one.minutes) for one in row.asks]
    table(f"To write, in exercises/{row.name}/", ("exercise", "what", "minutes"), rows)


def run_lesson(path: Path) -> None:
    """Runs a lesson cell by cell: prints its prose and its code, and in between what it prints.

    In a terminal it stops before each section, and where it is the reader's turn.
    """
    console, namespace = _console(), {"__name__": "__main__", "__file__": str(path)}
    interactive = _is_interactive()
    for kind, start, lines in _cells(path.read_text(encoding="utf-8").splitlines()):
        if kind == "code":
            source = "\n".join(lines)
            code = Syntax(source.strip(), "python", theme="ansi_dark", word_wrap=True)
            console.print(code, "")
            # The blank lines give errors and the inspector the line numbers of the file.
            exec(compile("\n" * start + source, path, "exec"), namespace)
            continue
        prose = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
        if interactive and prose.startswith("## "):
            console.input("[dim]Enter goes on[/dim] ")
        console.print(Markdown(prose), "")
        if interactive and YOUR_TURN in prose:
            console.input("[dim]Enter shows the answer[/dim] ")


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


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
