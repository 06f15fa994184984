"""The verb that draws pipeline schedules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxpar.cli.base import BAD_USE, AsJson, app, console, print_json, write_text
from jaxpar.course.catalog import BadUseError

if TYPE_CHECKING:
    from jaxpar.drawing.schedule import Track
    from jaxpar.schedules import Costs, Table

STAGES, MICROBATCHES, MOST_FORWARDS = 4, 8, 300_000
NAMES = "naive, gpipe, 1f1b, interleaved, breadth-first, zb-h1, zb-h2, zb-v, dualpipe-v"

Name = Annotated[str | None, typer.Argument(metavar="NAME", help=f"One of {NAMES}.")]
Stages = Annotated[
    int | None,
    typer.Option(
        "--stages",
        "--devices",
        min=1,
        metavar="N",
        help=f"The number of devices; {STAGES} unless given.",
    ),
]
Microbatches = Annotated[
    int | None, typer.Option(min=1, metavar="N", help=f"Their number; {MICROBATCHES} unless given.")
]
Chunks = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Stages on each device, for interleaved and breadth-first."
    ),
]
Cost = Annotated[
    str, typer.Option(metavar="TIMES", help="The time of a cell of each kind; P is a transfer.")
]
ToCsv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write the table to a CSV file.")
]
FromCsv = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Take the table from a CSV file; compare it with the paper of NAME, if there is one.",
    ),
]
ToSvg = Annotated[
    Path | None, typer.Option("--svg", metavar="FILE", help="Draw it in an SVG file, too.")
]
Beside = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Draw this one beneath, with the same sizes and work."),
]


@app.command("schedule")
def draw_schedule(
    name: Name = None,
    stages: Stages = None,
    microbatches: Microbatches = None,
    chunks: Chunks = None,
    cost: Cost = "F=1,B=2,I=1,W=1,P=0",
    csv: ToCsv = None,
    source: FromCsv = None,
    svg: ToSvg = None,
    beside: Beside = None,
    as_json: AsJson = False,
) -> None:
    """Draws a pipeline schedule: what each device does when, its bubble, and what is in flight.

    A CSV file has a row for each device. A cell such as 0F0 names a stage, what it computes, and a
    microbatch. F is a forward pass and B a backward pass, whose halves are I (gradient of the
    input) and W (gradient of the weights). In an empty cell the device is idle.
    """
    from jaxpar.drawing.schedule import Timeline, Track
    from jaxpar.schedules import simulate, to_ticks
    from jaxpar.schedules.files import BrokenTableError
    from jaxpar.schedules.generators import LOOPED

    sizes = {"stages": stages, "microbatches": microbatches, "chunks": chunks}
    try:
        costs = _costs(cost)
        table = _read(source, sizes, name, csv) if source else _make(name, sizes, beside)
        title = source.name if source else name or ""
        tracks = [Track(title, simulate(table, costs), name or "")]
        if beside:
            tracks.append(tracks[0].rival(beside, chunks if beside in LOOPED else None))
        if csv:
            write_text("schedule", csv, to_ticks(table).to_csv())
        if svg:
            write_text("schedule", svg, Timeline(tuple(tracks)).to_svg())
        _show(tracks, as_json)
    except BrokenTableError as error:
        if not as_json:
            raise BadUseError(str(error)) from None
        print_json({"valid": False, "error": str(error)})
        raise typer.Exit(BAD_USE) from None
    except ValueError as error:
        raise BadUseError(str(error)) from None


def _make(name: str | None, sizes: dict[str, int | None], beside: str | None) -> Table:
    from jaxpar.schedules import make_table
    from jaxpar.schedules.generators import LOOPED

    if name is None:
        raise ValueError(f"schedule: no NAME and no --from FILE; give one of {NAMES}")
    devices = sizes["stages"] or STAGES
    microbatches = sizes["microbatches"] or MICROBATCHES
    chunks = sizes["chunks"]
    if devices * microbatches * (chunks or 1) > MOST_FORWARDS:
        raise ValueError(
            f"schedule: {devices} devices and {microbatches} microbatches are more than "
            f"{MOST_FORWARDS:,} forwards; use fewer"
        )
    if name not in LOOPED and beside in LOOPED:
        chunks = None  # the chunks are meant for the schedule beneath
    return make_table(name, devices, microbatches, chunks)


def _read(path: Path, sizes: dict[str, int | None], name: str | None, csv: Path | None) -> Table:
    from jaxpar.schedules.files import read_table

    if csv:
        raise ValueError("schedule: both --from and --csv; a table is read or written, use one")
    if name is not None and name not in NAMES.split(", "):
        raise ValueError(f"schedule: {name} is unknown; use one of {NAMES}")
    table = read_table(path)
    has = {"stages": table.devices, "microbatches": table.microbatches, "chunks": table.chunks}
    for size, asked in sizes.items():
        if asked not in (None, has[size]):
            raise ValueError(
                f"schedule: {path} has {has[size]} {'devices' if size == 'stages' else size}, and "
                f"--{size} says {asked}; mend the table, or leave --{size} out"
            )
    return table


def _costs(text: str) -> Costs:
    from dataclasses import fields

    from jaxpar.schedules import Costs

    letters = [field.name for field in fields(Costs)]
    costs: dict[str, float] = {}
    for part in text.split(","):
        letter, _, number = (word.strip() for word in part.partition("="))
        try:
            value = float(number)
        except ValueError:
            value = None
        if letter not in letters or value is None or letter in costs:
            raise ValueError(
                f"schedule: --cost {text!r}: {part!r} is no cost; give each of F, B, I, W and P at "
                "most once, as in F=1,B=2,P=0.5"
            )
        costs[letter] = int(value) if value.is_integer() else value
    return Costs(**costs)


def _show(tracks: list[Track], as_json: bool) -> None:
    from jaxpar.drawing.elements import ASCII
    from jaxpar.drawing.schedule import Timeline
    from jaxpar.drawing.schedule_table import render, to_dict

    data, *more = [to_dict(track.simulation) for track in tracks]
    if as_json:
        print_json(data | ({"beside": more[0]} if more else {}))
        return
    screen = console()
    text = Timeline(tuple(tracks)).to_rich(screen.width)
    if screen.options.ascii_only:
        text.plain = text.plain.translate(ASCII)
    screen.print(text, render(tracks), sep="\n\n")
