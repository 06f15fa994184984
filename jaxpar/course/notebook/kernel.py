"""What a lesson shows in a notebook: pictures in colour and tables, in place of lines of text."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from jaxpar.course.table import html_table
from jaxpar.course.terminal import WIDTH, Terminal
from jaxpar.drawing.picture import Picture


def in_kernel() -> bool:
    """Whether this process runs the cells of a notebook, which can show more than text."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


class Kernel(Terminal):
    """Shows below the cell that runs."""

    def table(self, title: str, table: Table) -> None:
        """Shows a table, and its lines to whoever shows text only."""
        plain = Console(color_system=None, force_jupyter=False, width=WIDTH)
        with plain.capture() as text:
            plain.print(title, table)
        show("text/html", html_table(title, table), text.get())

    def picture(self, name: str, picture: Picture) -> None:
        """Shows a picture in colour; no file is written."""
        del name
        show("image/svg+xml", picture.to_svg(), picture.to_text())


def show(kind: str, data: str, text: str) -> None:
    """Shows something below the cell that runs.

    Args:
        kind: the MIME type of the data, such as `image/svg+xml`.
        data: what a notebook shows.
        text: the same for whoever shows text only.
    """
    from IPython.display import display

    display({kind: data, "text/plain": text}, raw=True)
