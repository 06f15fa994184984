"""Summarizes simulated schedules, as a table for a terminal and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from jaxpar.drawing.schedule import Track
from jaxpar.schedules.published import PUBLISHED
from jaxpar.schedules.simulator import Number, Simulation

NUMBERS = ("makespan", "ideal", "idle", "bubble")


def to_dict(simulation: Simulation) -> dict[str, Any]:
    """The results of a simulation, as values that JSON can hold."""
    return {
        "makespan": simulation.makespan,
        "ideal": simulation.ideal,
        "bubble": simulation.bubble,
        "bubble_per_device": simulation.bubble_per_device,
        "peak_in_flight": simulation.peak_in_flight,
        "valid": True,
    }


def render(tracks: Sequence[Track]) -> RenderableType:
    """A table with a row for each schedule, and below it what its paper says, if it has one.

    Args:
        tracks: Simulated schedules, each with the name of the published schedule that it is.
    """
    spans = any(_span(track.simulation) < _idle(track.simulation) for track in tracks)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("schedule", no_wrap=True)
    for heading in (*NUMBERS, *["in span"] * spans):
        table.add_column(heading, justify="right", no_wrap=True)
    chunks = any(track.simulation.table.chunks > 1 for track in tracks)
    table.add_column(f"in flight{', in chunks' * chunks}, by device")
    for track in tracks:
        for name, row, span, in_flight in _rows(track):
            table.add_row(name, *row, *[span] * spans, in_flight)
    return Group(table, *_notes(tracks, spans))


def _rows(track: Track) -> Iterator[tuple[str, Sequence[str], str, str]]:
    """The rows of a schedule, simulated and published.

    Each is a name, `NUMBERS`, the idle time in a device's own span, and the counts in flight.
    """
    simulation = track.simulation
    makespan, ideal = simulation.makespan, simulation.ideal
    numbers = [*map(_number, (makespan, ideal, _idle(simulation))), f"{simulation.bubble:.1%}"]
    yield track.name, numbers, _number(_span(simulation)), _counts(simulation.peak_in_flight)
    paper = PUBLISHED.get(track.paper)
    figures = paper and paper.figures(simulation.table, simulation.costs)
    if not (paper and figures):
        return
    numbers, span = [""] * len(NUMBERS), ""
    if paper.own_span and figures.idle is not None:
        span = _number(figures.idle)
    elif figures.idle is not None:
        total = ideal + figures.idle
        numbers = [*map(_number, (total, ideal, figures.idle)), f"{figures.idle / total:.1%}"]
    yield "  published", numbers, span, _counts(figures.in_flight)


def _notes(tracks: Sequence[Track], spans: bool) -> Iterator[str]:
    yield "ideal: the busiest device without a pause. idle: makespan - ideal."
    yield "in flight: from the start of F to the end of B, or of W where the backward is split."
    if spans:
        yield "in span: the most that a device idles between its own first and last cell."
    papers = [track.paper for track in tracks if track.paper]
    if papers:
        yield "p devices, m microbatches, v chunks on a device; r: the device, from 0."
    for paper in papers:
        yield f"{paper}, published: {PUBLISHED[paper]}."
    if any(track.simulation.costs.P for track in tracks):
        yield "What is published counts no transfers (P), so it is not computed here."


def _idle(simulation: Simulation) -> Number:
    return simulation.makespan - simulation.ideal


def _span(simulation: Simulation) -> Number:
    return max(simulation.idle_in_span_per_device)


def _number(value: Number) -> str:
    return f"{value:,.6g}"


def _counts(counts: Sequence[int]) -> str:
    if len(counts) > 1 and len(set(counts)) == 1:
        return f"{counts[0]} on each"
    return " ".join(map(str, counts))
