"""The record of a run: what it was, and of the tracker csv also what each step told. No JAX here.

folder/run.json     the options, the sizes, and when and on what each attempt began
folder/steps.csv    a row for each step
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxpar.train.files import write_whole

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
    write_whole(folder / RUN, json.dumps(about, indent=1))


def read_rows(folder: Path) -> list[Row]:
    """What each step told, oldest first, without a row that was not written to its end.

    Raises:
        ValueError: there is something else than numbers.
        OSError: the file cannot be read.
    """
    path = folder / STEPS
    text = path.read_text("utf-8") if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    return [
        {name: float(value) for name, value in row.items() if value}
        for row in csv.DictReader(io.StringIO(whole))
    ]


def to_csv(rows: Iterable[Row], *, header: bool = False) -> str:
    """Rows as lines of the file of steps."""
    file = io.StringIO()
    writer = csv.DictWriter[str](file, COLUMNS, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
