"""What lessons show: source code, tables, and their exercises; and how a lesson is run.

A lesson is a script that imports the first part. `lesson_process` runs this module as a process,
with the path of a lesson as its argument.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.markdown import Markdown

from jaxpar.course.catalog import lesson
from jaxpar.course.cells import namespace_of, read_cells
from jaxpar.course.command import command
from jaxpar.course.keyboard import is_interactive
from jaxpar.course.output import output
from jaxpar.course.pager import Pager, ReaderLeft
from jaxpar.course.table import make_table
from jaxpar.course.terminal import console
from jaxpar.course.wrapping import Code
from jaxpar.inspector import Report

LEFT = 130
SHOWS_ANSWER = "Enter shows the answer"
_ANSWER = re.compile(r"<details>\s*<summary>[^<]*</summary>\s*(.*?)</details>", re.DOTALL)
"""An answer that a page folds; the text inside is the group."""


def show(*functions: Callable[..., Any]) -> None:
    """Shows the source of functions: what is shown is what runs."""
    for function in functions:
        file = function.__module__.replace(".", "/")
        output().code(f"# {file}.py\n{inspect.getsource(function)}")


def table(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Shows a table; the numbers of a column are aligned and have equally many decimals."""
    output().table(title, make_table(headers, rows))


def show_report(report: Report) -> None:
    """Shows what the inspector found."""
    output().report(report)


def exercises(number: str) -> None:
    """Shows what the lesson asks the reader to write."""
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
    namespace = namespace_of(path)
    for cell in read_cells(path):
        if cell.kind != "markdown":
            if not (brief and cell.kind == "fold"):
                with collected():
                    console().print(Code(cell.source), "")
            with collected():
                cell.run(path, namespace)
            continue
        if pager and cell.source.startswith("## "):
            pager.pause()
        for place, part in enumerate(_ANSWER.split(cell.source)):
            if pager and place % 2:
                pager.pause(SHOWS_ANSWER)
            with collected():
                console().print(Markdown(part), "")


if __name__ == "__main__":
    lesson_file, *options = sys.argv[1:]
    # `command` spells the program that started this: the one beside this Python.
    sys.argv[0] = str(Path(sys.executable).with_name("jaxpar"))
    sys.exit(0 if run_lesson(Path(lesson_file), brief="--brief" in options) else LEFT)
