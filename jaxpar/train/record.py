"""The record of a run: what it was, and of the tracker csv also what each step told. No JAX here.

folder/run.json     the options, the sizes, and when and on what each attempt began
folder/steps.csv    a row for each step
"""

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from jaxpar.files import write_atomically

RUN, STEPS = "run.json", "steps.csv"
COLUMNS = (
    "step",
    "loss",
    "gradient_norm",
    "learning_rate",
    "seconds",
    "tokens_per_second",
    "mfu",
    "largest_load",
    "dropped",
    "skipped",
    "validation_loss",
    "perplexity",
    "bits_per_byte",
)

Row = Mapping[str, float]


def read_about(folder: Path) -> dict[str, Any] | None:
    """What the run of this folder was; None: the folder has no record.

    Raises:
        ValueError: its file is no record.
        OSError: it cannot be read.
    """
    try:
        text = (folder / RUN).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    about = json.loads(text)
    if not isinstance(about, dict) or not {"tracker", "options", "attempts"} <= about.keys():
        raise ValueError(f"{folder / RUN} is no record of a run")
    return about


def write_about(folder: Path, about: Mapping[str, Any]) -> None:
    """Says what the run of this folder is.

    Raises:
        OSError: it cannot be written.
    """
    write_atomically(folder / RUN, json.dumps(about, indent=1).encode(), public=True)


def read_rows(folder: Path) -> list[Row]:
    """What each step told, oldest first.

    Raises:
        ValueError: there is something else than numbers.
        OSError: the file cannot be read.
    """
    return [
        {name: float(value) for name, value in row.items() if value}
        for row in csv.DictReader(_lines(folder))
    ]


def begin_rows(folder: Path, last: int) -> IO[str]:
    """The file of steps, open at its end, with the rows up to step `last` of what was there.

    Raises:
        OSError: it cannot be written.
    """
    head, before = ",".join(COLUMNS), _lines(folder)[1:]
    kept = [line for line in before if float(line.partition(",")[0]) <= last]
    text = "\n".join([head, *kept]) + "\n"
    write_atomically(folder / STEPS, text.encode(), public=True)
    return (folder / STEPS).open("a", encoding="utf-8", newline="")


def write_row(file: IO[str], row: Row) -> None:
    """Adds a row, which is in the file when this returns.

    Raises:
        OSError: it cannot be written.
    """
    csv.writer(file, lineterminator="\n").writerow([row.get(name) for name in COLUMNS])
    file.flush()


def _lines(folder: Path) -> list[str]:
    """The lines of the file of steps, without one that was not written to its end."""
    path = folder / STEPS
    return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []
