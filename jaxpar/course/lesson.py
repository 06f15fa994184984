"""What lessons print with: source code, tables, and their exercises; and how a lesson is run.

A lesson is a script that imports the first part. `lesson_process` runs this module as a process,
with the path of a lesson as its argument.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import signal
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
from jaxpar.course.command import command
from jaxpar.course.keyboard import is_interactive
from jaxpar.course.notebook.kernel import in_kernel, show_table
from jaxpar.course.pager import Pager, ReaderLeft
from jaxpar.course.wrapping import Code
from jaxpar.inspector import Report, render

WIDTH = 100
LEFT = 130
YOUR_TURN = "Your turn"
SHOWS_ANSWER = "Enter shows the answer"
FOLD = ' tags=["fold"]'
_ANSWER = re.compile(r"<details>\s*<summary>[^<]*</summary>\s*(.*?)</details>", re.DOTALL)
"""An answer that a page folds; the text inside is the group."""


def show(*functions: Callable[..., Any]) -> None:
    """Prints the source of functions: what is printed is what runs."""
    for function in functions:
        file = function.__module__.replace(".", "/")
        _console().print(Code(f"# {file}.py\n{inspect.getsource(function)}"), "")


def table(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table; the numbers of a column are aligned and have equally many decimals."""
    columns = list(zip(*rows, strict=True))
    numeric = [all(isinstance(value, int | float) for value in column) for column in columns]
    cells = list(zip(*map(_cells_of_column, columns), strict=True))
    shown = Table(box=box.SIMPLE_HEAD)
    for header, right in zip(headers, numeric, strict=True):
        shown.add_column(header, justify="right" if right else "left")
    for row in cells:
        shown.add_row(*row)
    if in_kernel():
        plain = Console(color_system=None, force_jupyter=False, width=WIDTH)
        with plain.capture() as text:
            plain.print(title, shown)
        show_table(title, headers, cells, numeric, text.get())
        return
    _console().print(Text(title, "bold"), shown)


def show_report(report: Report) -> None:
    """Prints what the inspector found."""
    _console().print(render(report), "")


def exercises(number: str) -> None:
    """Prints what the lesson asks the reader to write."""
    row = lesson(number)
    rows = [(one.id, one.title, one.minutes) for one in row.asks]
    table(f"To write, in exercises/{row.name}/", ("exercise", "what", "minutes"), rows)
    print(f"Write one, save it, and run `{command()} check {row.asks[0].id}`.")
    print(f"Or run `{command()}` alone: it checks at every save.\n")


def run_lesson(path: Path, *, brief: bool = False) -> bool:
    """Runs a lesson cell by cell: prints its prose, its code, and what the code prints.

    In a terminal it stops before each section, before an answer, and where the screen is full.
    Returns whether the reader stayed to the end.

    Args:
        path: the lesson, in percent format. A code cell whose mark is `# %% tags=["fold"]` only
            draws or checks.
        brief: whether the code of such cells is left out; what they print is not.
    """
    pager = Pager() if is_interactive() else None
    try:
        if sys.platform != "win32":  # `lesson_process` holds Ctrl-C back until now
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        _run_cells(path, pager, brief)
    except (ReaderLeft, KeyboardInterrupt):
        print(f"To come back: {command()} lesson {path.name[:2]}")
        return False
    return True


def _run_cells(path: Path, pager: Pager | None, brief: bool) -> None:
    collected = pager.collected if pager else contextlib.nullcontext
    namespace = {"__name__": "__main__", "__file__": str(path)}
    for kind, start, lines in _cells(path.read_text(encoding="utf-8").splitlines()):
        if kind != "markdown":
            source = "\n".join(lines)
            if not (brief and kind == "fold"):
                with collected():
                    _console().print(Code(source), "")
            with collected():
                # The blank lines give errors and the inspector the line numbers of the file.
                exec(compile("\n" * start + source, path, "exec"), namespace)
            continue
        prose = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
        if pager and prose.startswith("## "):
            pager.pause()
        for place, part in enumerate(_ANSWER.split(prose)):
            if pager and place % 2:
                pager.pause(SHOWS_ANSWER)
            with collected():
                _console().print(Markdown(part), "")
        if pager and YOUR_TURN in prose:
            pager.pause(SHOWS_ANSWER)


def _cells(lines: Sequence[str]) -> Iterator[tuple[str, int, Sequence[str]]]:
    """Yields the kind of each cell, the number of lines before it, and its lines.

    A kind is `markdown`, `code`, or `fold` for code that only draws or checks.
    """
    marks = [place for place, line in enumerate(lines) if line.startswith("# %%")]
    for mark, end in zip(marks, [*marks[1:], len(lines)], strict=True):
        named = {" [markdown]": "markdown", FOLD: "fold"}
        kind = named.get(lines[mark].removeprefix("# %%"), "code")
        yield kind, mark + 1, lines[mark + 1 : end]


def _cells_of_column(column: Sequence[object]) -> list[str]:
    """Returns a column as text; all numbers have as many decimals as the one with the most."""
    floats = (value for value in column if isinstance(value, float) and not value.is_integer())
    decimals = max((len(str(value).partition(".")[2]) for value in floats), default=0)
    return [
        f"{value:,.{decimals}f}" if isinstance(value, int | float) else str(value)
        for value in column
    ]


def _console() -> Console:
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    return console


if __name__ == "__main__":
    lesson_file, *options = sys.argv[1:]
    # `command` spells the program that started this: the one beside this Python.
    sys.argv[0] = str(Path(sys.executable).with_name("jaxpar"))
    sys.exit(0 if run_lesson(Path(lesson_file), brief="--brief" in options) else LEFT)
