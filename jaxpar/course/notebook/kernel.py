"""Pictures and tables in a notebook, where they are shown in place of being printed."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def in_kernel() -> bool:
    """Whether this process runs the cells of a notebook, which can show more than text."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


def show(kind: str, data: str, text: str) -> None:
    """Shows something below the cell that runs.

    Args:
        kind: the MIME type of the data, such as `image/svg+xml`.
        data: what a notebook shows.
        text: the same for whoever shows text only.
    """
    from IPython.display import display

    display({kind: data, "text/plain": text}, raw=True)


def show_table(
    title: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    text: str,
) -> None:
    """Shows a table below the cell that runs.

    Args:
        title: its title.
        headers: what stands above each column.
        rows: the cells of each row.
        numeric: for each column, whether its cells are numbers.
        text: the same for whoever shows text only.
    """
    from jaxpar.drawing.pages import render

    sides = ["right" if one else "left" for one in numeric]
    values = {"title": title, "headers": headers, "rows": rows, "sides": sides}
    show("text/html", render("jaxpar.course.notebook", "lesson_table.html", **values), text)
