"""The verb that draws the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from jaxpar.cli.base import app, errors_as_bad_use, write_text

PAGE = "report.html"


@app.command("report")
def report_run(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The folder of a record of `train --track csv`.")
    ],
) -> None:
    """Draws the page of a run from its record: its curves, memory, communication and restarts.

    It writes report.html into the folder of the record, also while the run goes on. The page is one
    file that loads nothing.
    """
    from jaxpar.train.report import run_page

    with errors_as_bad_use():
        write_text("report", run / PAGE, run_page(run))
