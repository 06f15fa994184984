"""The verb that writes a lesson as a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jaxpar.cli.base import AsJson, app, show
from jaxpar.cli.learn import course_here
from jaxpar.course.catalog import lesson


@app.command("notebook")
def write_lesson_notebook(
    number: Annotated[
        str, typer.Argument(metavar="NUMBER", help="The number of the lesson, such as 02.")
    ],
    colab: Annotated[
        bool, typer.Option("--colab", help="Begin with cells that install jaxpar on Colab.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.ipynb",
            help="Where it goes, if not into the folder `notebooks` of the course.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Writes a lesson as a notebook, with a cell for each exercise that is judged when it runs.

    If another notebook is there already, a numbered copy of it is kept.
    """
    from jaxpar.course.notebook.lesson_file import write_notebook

    row, course = lesson(number), course_here()
    path = out or course.root / "notebooks" / f"{row.name}.ipynb"
    backup = write_notebook(course, row, path, colab=colab)
    kept = [f"The notebook that was there is kept as {backup}."] if backup else []
    lines = [f"{path} is written.", *kept, "Open it with Jupyter or VS Code, and run its cells."]
    data = {"notebook": str(path), "backup": str(backup) if backup else None}
    show(as_json, data, lines)
