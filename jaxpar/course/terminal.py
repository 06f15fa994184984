"""What a lesson shows in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxpar.course.catalog import BadUseError
from jaxpar.course.folder import find_course
from jaxpar.course.prediction import Kind
from jaxpar.course.wrapping import Code
from jaxpar.drawing.elements import printable
from jaxpar.drawing.picture import Picture
from jaxpar.files import write_atomically
from jaxpar.inspector import Report, render

WIDTH = 100


def console() -> Console:
    """A console for lines that somebody reads, and that are as long in a file."""
    made = Console(highlight=False)
    made.width = min(made.width, WIDTH) if made.is_terminal else WIDTH
    return made


class Terminal:
    """Prints everything; pictures are also written as SVG files in the course folder."""

    def code(self, source: str) -> None:
        """Prints code, and breaks its lines where they are too wide."""
        console().print(Code(source), "")

    def table(self, title: str, table: Table) -> None:
        """Prints a table below its title."""
        console().print(Text(title, "bold"), table)

    def report(self, report: Report) -> None:
        """Prints the tables of a report."""
        console().print(render(report), "")

    def picture(self, name: str, picture: Picture) -> None:
        """Prints a picture as lines, and writes it to pictures/NAME.svg in the course folder."""
        text = printable(picture.to_text(), sys.stdout.encoding)
        print(f"{text}\n\n{_write(name, picture.to_svg())}\n")

    def question(self, text: str, kind: Kind) -> None:
        """Prints a question."""
        del kind
        print(text)

    def answer(self, text: str, measured: float, parts: Mapping[str, str], words: str) -> None:
        """Prints what is right, and what the reader predicted."""
        del text, measured, parts
        print(f"{words}\n")


def _write(name: str, svg: str) -> str:
    try:
        root = find_course(Path.cwd()).root
    except BadUseError:
        root = Path.cwd()
    path = root / "pictures" / f"{name}.svg"
    try:
        write_atomically(path, svg.encode())
    except OSError as error:
        return f"(the picture in colour was not written: {error})"
    return f"(in colour: {path.relative_to(root)})"
