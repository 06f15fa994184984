"""The verb that draws pipeline schedules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxpar.cli.base import BAD_USE, AsJson, app, console, print_json, write_text
from jaxpar.course.catalog import BadUseError

if TYPE_CHECKING:
    from jaxpar.drawing.schedule import Track
    from jaxpar.schedules import Table
    from jaxpar.schedules.search import Found

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
    str,
    typer.Option(
        metavar="TIMES",
        help="The time of a cell of each kind; P is a transfer. With --search, B is I+W, or I and "
        "W are half of B, where only one side is given.",
    ),
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
Search = Annotated[
    bool,
    typer.Option(
        "--search",
        help="Search the shortest schedule with one stage on each device, and compare it with the "
        "published ones.",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="With --search: the most microbatches in flight on a device, until W; as many as "
        "devices unless given.",
    ),
]
Span = Annotated[
    bool,
    typer.Option(
        "--span",
        help="With --search: shorten the longest time from a device's own first cell to its last, "
        "as if no device waited for the others between two steps.",
    ),
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
    search: Search = False,
    limit: Limit = None,
    span: Span = False,
    as_json: AsJson = False,
) -> None:
    """Draws a pipeline schedule: what each device does when, its bubble, and what is in flight.

    A CSV file has a row for each device. A cell such as 0F0 names a stage, what it computes, and a
    microbatch. F is a forward pass and B a backward pass, whose halves are I (gradient of the
    input) and W (gradient of the weights). In an empty cell the device is idle.
    """
    from jaxpar.drawing.schedule import Timeline, Track
    from jaxpar.schedules import Costs, simulate, to_ticks
    from jaxpar.schedules.files import BrokenTableError
    from jaxpar.schedules.generators import LOOPED

    sizes = {"stages": stages, "microbatches": microbatches, "chunks": chunks}
    try:
        costs, found = _costs(cost), None
        if search:
            _refuse_with_search(name, source, None if beside in LOOPED else chunks)
            found = _search(sizes, limit, _with_both_backwards(costs), span)
            tracks = [Track("searched", found.simulation)]
        else:
            _refuse_without_search(limit, span)
            table = _read(source, sizes, name, csv) if source else _make(name, sizes, beside)
            title = source.name if source else name or ""
            tracks = [Track(title, simulate(table, Costs(**costs)), name or "")]
        if beside:
            tracks.append(tracks[0].rival(beside, chunks if beside in LOOPED else None))
        if csv:
            write_text("schedule", csv, to_ticks(tracks[0].simulation.table).to_csv())
        if svg:
            write_text("schedule", svg, Timeline(tuple(tracks)).to_svg())
        _show(tracks, found, as_json)
    except BrokenTableError as error:
        if not as_json:
            raise BadUseError(str(error)) from None
        print_json({"valid": False, "error": str(error)})
        raise typer.Exit(BAD_USE) from None
    except ValueError as error:
        raise BadUseError(str(error)) from None


def _refuse_with_search(name: str | None, source: Path | None, chunks: int | None) -> None:
    given = {"NAME": name, "--from": source, "--chunks": chunks}
    for option, value in given.items():
        if value is not None:
            raise ValueError(
                f"schedule: both --search and {option}; what is searched has one stage on each "
                "device and is compared with all published ones that have; use one"
            )


def _refuse_without_search(limit: int | None, span: bool) -> None:
    for option, is_given in {"--limit": limit is not None, "--span": span}.items():
        if is_given:
            raise ValueError(
                f"schedule: {option} without --search; a schedule that has a name keeps what it "
                f"keeps; add --search, or leave {option} out"
            )


def _search(
    sizes: dict[str, int | None], limit: int | None, costs: dict[str, float], span: bool
) -> Found:
    from jaxpar.schedules import Costs
    from jaxpar.schedules.search import search_schedule

    devices = sizes["stages"] or STAGES
    microbatches = sizes["microbatches"] or MICROBATCHES
    return search_schedule(devices, microbatches, limit, Costs(**costs), span=span)


def _with_both_backwards(costs: dict[str, float]) -> dict[str, float]:
    """The same costs where a whole backward takes as long as its halves, if one side is missing."""
    given = costs.keys() & {"B", "I", "W"}
    if given == {"B"}:
        return costs | {"I": costs["B"] / 2, "W": costs["B"] / 2}
    if given and "B" not in given:
        return costs | {"B": costs.get("I", 1) + costs.get("W", 1)}
    return costs


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


def _costs(text: str) -> dict[str, float]:
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
    return costs


def _show(tracks: list[Track], found: Found | None, as_json: bool) -> None:
    from jaxpar.drawing.elements import ASCII
    from jaxpar.drawing.schedule import Timeline, Track
    from jaxpar.drawing.schedule_table import render, to_dict

    if as_json:
        data, *more = [to_dict(track.simulation) for track in tracks]
        print_json(
            data | ({"beside": more[0]} if more else {}) | (_to_dict(found) if found else {})
        )
        return
    screen = console()
    text = Timeline(tuple(tracks)).to_rich(screen.width)
    if screen.options.ascii_only:
        text.plain = text.plain.translate(ASCII)
    if not found:
        screen.print(text, render(tracks), sep="\n\n")
        return
    drawn = {track.name for track in tracks}
    rivals = [Track(name, one) for name, one in found.named.items() if name not in drawn]
    screen.print(text, render([*tracks, *rivals]), _verdict(found), sep="\n\n")


def _to_dict(found: Found) -> dict[str, Any]:
    from jaxpar.drawing.schedule_table import to_dict

    known = {name: getattr(found, name) for name in ("limit", "span", "length", "least")}
    return known | {"named": {name: to_dict(one) for name, one in found.named.items()}}


def _verdict(found: Found) -> str:
    """How short a searched schedule is, in words."""
    over = [name for name, one in found.named.items() if max(one.peak_in_flight) > found.limit]
    what = "Longest span" if found.span else "Makespan"
    lines = [
        f"Limit: {found.limit} in flight; over it: {', '.join(over) or 'none'}.",
        f"{what} found: {found.length:,.6g}.",
    ]
    if found.is_shortest:
        lines.append("No schedule of one stage per device within the limit is shorter.")
    else:
        above = found.length / found.least - 1
        lines.append(f"Lower bound: {found.least:,.6g}; what was found is {above:.1%} above it.")
    return "\n".join(lines)
