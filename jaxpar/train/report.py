"""The page of a run, from the record that `jaxpar train --track csv` makes of it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxpar.drawing.bars import Bars
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.pages import inline, render
from jaxpar.train.manifest import steps_in
from jaxpar.train.record import Row, read_about, read_rows

MOST_PLACES = 1000  # of a curve; of longer runs, the means of some steps each are drawn
DRAWN = (
    ("loss", "Loss", "nats a token"),
    ("validation_loss", "Validation loss", "nats a token"),
    ("gradient_norm", "Gradient norm", "before clipping"),
    ("learning_rate", "Learning rate", "rate"),
    ("tokens_per_second", "Speed", "tokens/s"),
    ("mfu", "Model FLOPs utilization", "part of the peak"),
    ("largest_load", "Largest load of an expert", "over the mean load"),
    ("dropped", "Dropped choices of experts", "part of all"),
)


def run_page(folder: Path) -> str:
    """The page's text; it loads nothing.

    Raises:
        ValueError: the folder has no record of this kind, or a damaged one.
    """
    about, rows = _read(folder)
    attempts = list(enumerate(about["attempts"], 1))
    return render(
        "jaxpar.train",
        "report.html",
        name=folder.absolute().name,
        summary=list(_summary(about, rows)),
        options=sorted(about["options"].items()),
        curves=[inline(curves.to_svg()) for curves in _curves(rows)],
        attempts=[(number, *_attempt(one)) for number, one in attempts],
        memory=inline(_memory(attempts).to_svg()),
        sent=[(number, *row) for number, one in attempts for row in _sent(one)],
        skipped=list(_skipped(about, rows)),
        checkpoints=_checkpoints(about),
    )


def _read(folder: Path) -> tuple[dict[str, Any], list[Row]]:
    where = f"report: {folder}"
    try:
        about = read_about(folder)
        rows = read_rows(folder) if about else []
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: the record cannot be read: {error}") from None
    if about is None:
        raise ValueError(
            f"{where} holds no record of a run; give the folder that `jaxpar train --track csv` "
            "has named"
        )
    if about["tracker"] != "csv":
        raise ValueError(
            f"{where} is a record for {about['tracker']}, which shows it by itself; a report is "
            "made of a record of --track csv"
        )
    return about, rows


def _summary(about: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    yield f"{about['parameters']:,} parameters; optimizer: {about['updates']}"
    if not rows:
        yield f"no step of {about['options']['steps']} was taken"
        return
    first, last = rows[0], rows[-1]
    later = rows[1:] or rows  # the first also loads the program and its libraries
    seconds = sum(row["seconds"] for row in later)
    yield f"step {last['step']:,.0f} of {about['options']['steps']:,}"
    yield f"loss {first['loss']:.4f} -> {last['loss']:.4f}"
    tokens = sum(row["tokens_per_second"] * row["seconds"] for row in later)
    yield f"{tokens / seconds:,.0f} tokens/s"
    if "mfu" in last:
        yield f"MFU {sum(row['mfu'] * row['seconds'] for row in later) / seconds:.1%}"


def _curves(rows: Sequence[Row]) -> Iterator[Curves]:
    """What the steps told over their numbers; a number that is not finite is left out."""
    for column, title, up in DRAWN:
        told = [row for row in rows if math.isfinite(row.get(column, math.nan))]
        if not told:
            continue
        each = -(-len(told) // MOST_PLACES)
        parts = [told[start : start + each] for start in range(0, len(told), each)]
        values = [sum(row[column] for row in part) / len(part) for part in parts]
        title = title if each == 1 else f"{title}: means of {each} steps"
        places = [part[-1]["step"] for part in parts]
        yield Curves(title, "step", up, places, {column.replace("_", " "): values})


def _attempt(attempt: Mapping[str, Any]) -> Sequence[object]:
    return (
        attempt["began"],
        attempt["after_step"],
        attempt["mesh"],
        attempt["zero"],
        f"{attempt['devices']} x {attempt['device']}",
        attempt["processes"],
    )


def _memory(attempts: Sequence[tuple[int, Mapping[str, Any]]]) -> Bars:
    held = {
        f"{number}. {one['mesh']}": {
            "arguments": one["memory"]["arguments_bytes"] / 1e6,
            "temporary": one["memory"]["temp_bytes"] / 1e6,
        }
        for number, one in attempts
    }
    return Bars("What a device holds in a step", "MB", held)


def _sent(attempt: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for one in attempt["bytes_by_axis"]:
        sizes = one["predicted_bytes"], one["by_schedule_bytes"]
        yield ", ".join(one["axes"]), *(f"{size:,.0f} B" for size in sizes)


def _skipped(about: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    for row in rows:
        if row["skipped"]:
            norm = row["gradient_norm"]
            factor = about["options"]["skip_spikes"]
            why = (
                f"the norm is above {factor:g} times the running mean of those before"
                if math.isfinite(norm)
                else "the norm is not finite"
            )
            yield f"{row['step']:,.0f}", f"{norm:.4f}", why


def _checkpoints(about: Mapping[str, Any]) -> tuple[str, list[int]] | None:
    """Where checkpoints are, and after which steps; None: the run saved none."""
    folder = about["checkpoint"]
    return (folder, steps_in(Path(folder))) if folder else None
