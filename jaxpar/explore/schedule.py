"""The explorer of pipeline schedules: one by name, one that is searched, or an edited table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from jaxpar.drawing.schedule import Timeline, Track
from jaxpar.explore.controls import choice, number, read, text
from jaxpar.schedules import NAMES, Costs, Simulation, Table, check, make_table, simulate
from jaxpar.schedules.generators import LOOPED
from jaxpar.schedules.published import PUBLISHED
from jaxpar.schedules.search import Found, search_schedule
from jaxpar.schedules.simulator import Number
from jaxpar.schedules.table import Action

SEARCH = "search"
EDITED = "edited table"
MOST_CELLS = 4096
MOST_SEARCHED = 128
ROUNDED = 9  # decimals
PLACE = re.compile(r"row ([0-9]+) \(device [0-9]+\), cell ([0-9]+)")

CONTROLS = (
    choice(
        "name", "schedule", "1f1b", (*NAMES, (SEARCH, "search the shortest")),
        "Which order the devices work in.",
    ),
    number("p", "devices", 4, 1, 16, "How many devices the pipeline has."),
    number("m", "microbatches", 8, 1, 64, "How many microbatches a step has."),
    number(
        "chunks", "chunks", 2, 2, 8,
        "Stages on each device, in interleaved and breadth-first schedules.",
    ),
    number("F", "time of F", 1, 0, 100, "How long a forward takes.", whole=False),
    number("B", "time of B", 2, 0, 100, "How long a whole backward takes.", whole=False),
    number(
        "I", "time of I", 1, 0, 100, "How long the gradient of the input takes.", whole=False
    ),
    number(
        "W", "time of W", 1, 0, 100, "How long the gradient of the weights takes.", whole=False
    ),
    number("P", "time of a transfer", 0, 0, 100, "How long sending takes.", whole=False),
    number(
        "limit", "limit in flight", 0, 0, 64,
        "With a search: the most microbatches in flight on a device; 0 is as many as devices.",
    ),
    number(
        "activation_gb", "GB of a microbatch", 1, 0, 1000,
        "What a device keeps of one microbatch, all its chunks together, in GB.", whole=False,
    ),
    choice("beside", "beside it", "", (("", "nothing"), *NAMES), "A second schedule, beneath."),
    text("csv", "table", "", "A row of cells such as 0F0 for each device; it goes first."),
)  # fmt: skip


def answer(form: Mapping[str, Any]) -> dict[str, Any]:
    """When each device does what, what it waits for, and what it keeps.

    Raises:
        ValueError: a field has a value that is not allowed, or the table cannot be read.
    """
    given = read("schedule", CONTROLS, form)
    costs = Costs(**{name: given[name] for name in "FBIWP"})
    found, wrong = None, None
    if given["csv"].strip():
        table, name = Table.from_csv(given["csv"]), EDITED
        _check_size(sum(map(len, table.rows)))
        wrong = _wrong(table)
    elif given["name"] == SEARCH:
        found = _searched(given, costs)
        table, name = found.simulation.table, "searched"
    else:
        table, name = _named(given), given["name"]
    if wrong and not table.places:
        raise ValueError(wrong["text"])
    simulation = as_written(table, costs) if wrong else simulate(table, costs)
    track = Track(name, simulation, runs=not wrong)
    tracks = [track] if wrong else [track, *_beside(track, given)]
    answer = {
        "title": track.title,
        "svg": Timeline(tuple(tracks)).to_svg(),
        "notes": [],
        "numbers": [],
        "tables": [],
        "cells": list(_without_waits(track) if wrong else _cells(track.simulation)),
        "csv": Table(tuple(tuple(filter(None, row)) for row in table.rows)).to_csv(),
        "makespan": track.simulation.makespan,
        "unused": list(_unused(given, tracks)),
        "wrong": wrong,
    }
    if wrong:
        return answer
    return answer | {
        "numbers": _numbers(track.simulation, given["activation_gb"]),
        "tables": [_comparison(tracks, found), _devices(track.simulation, given["activation_gb"])],
        "notes": list(_notes(tracks, found)),
    }


def as_written(table: Table, costs: Costs) -> Simulation:
    """Every row in the order in which it is written, where nothing waits for anything."""
    starts: dict[Action, Number] = {}
    ends: dict[Action, Number] = {}
    for row in table.rows:
        time: Number = 0
        for action in filter(None, row):
            starts[action] = time
            time = ends[action] = time + getattr(costs, action.kind)
    return Simulation(table, costs, starts, ends, [])


def _named(given: Mapping[str, Any]) -> Table:
    chunks = given["chunks"] if given["name"] in LOOPED else None
    _check_size(3 * given["p"] * given["m"] * (chunks or 1))
    return make_table(given["name"], given["p"], given["m"], chunks)


def _searched(given: Mapping[str, Any], costs: Costs) -> Found:
    if given["p"] * given["m"] > MOST_SEARCHED:
        raise ValueError(
            f"schedule: a search for {given['p']} devices and {given['m']} microbatches takes too "
            f"long in a page; keep their product to {MOST_SEARCHED}, or run `jaxpar schedule "
            f"--search --stages {given['p']} --microbatches {given['m']}`"
        )
    return search_schedule(given["p"], given["m"], given["limit"] or None, costs)


def _unused(given: Mapping[str, Any], tracks: list[Track]) -> Iterator[str]:
    """The fields that have no effect on this answer."""
    if not {given["name"], given["beside"]} & set(LOOPED):
        yield "chunks"
    if given["name"] == SEARCH:  # which weighs whole backwards against halves
        return
    yield "limit"
    kinds = {action.kind for track in tracks for action in track.simulation.starts}
    yield from (kind for kind in "FBIW" if kind not in kinds)


def _beside(track: Track, given: Mapping[str, Any]) -> Iterator[Track]:
    name = given["beside"]
    if name:
        chunks = given["chunks"] if name in LOOPED else None
        cells = 3 * track.simulation.table.devices * track.simulation.table.microbatches
        _check_size(cells * (chunks or 1))
        yield track.rival(name, chunks)


def _check_size(cells: int) -> None:
    if cells > MOST_CELLS:
        raise ValueError(
            f"schedule: {cells:,} cells; at most {MOST_CELLS:,} can be drawn in a page; use fewer "
            "devices, microbatches or chunks"
        )


def _wrong(table: Table) -> dict[str, Any] | None:
    """The rule that a table breaks, and the cell at which it does; None if it is right."""
    try:
        check(table)
    except ValueError as error:
        message = str(error)
    else:
        return None
    device, cell = (int(count) - 1 for count in PLACE.search(message).groups())  # pyright: ignore
    row = table.rows[device]
    action = row[cell] if cell < len(row) else None
    return {"text": message, "cell": str(action) if action else None}


def _waits(simulation: Simulation) -> Iterator[tuple[Action, list[Action]]]:
    """For each action what must have ended: the one before it in its row, and what it needs."""
    table = simulation.table
    for row in table.rows:
        actions: list[Action | None] = [None, *filter(None, row)]
        for before, action in pairwise(actions):
            assert action is not None
            waits = dict.fromkeys((before, table.needs(action)))
            yield action, [one for one in waits if one]


def _cells(simulation: Simulation) -> Iterator[dict[str, Any]]:
    waits = dict(_waits(simulation))
    followers: dict[Action, list[str]] = {action: [] for action in waits}
    for action, earlier in waits.items():
        for one in earlier:
            followers[one].append(str(action))
    critical = set(simulation.critical_path)
    for action, earlier in waits.items():
        yield _cell(simulation, action) | {
            "critical": action in critical,
            "waits_for": list(map(str, earlier)),
            "waited_on_by": followers[action],
        }


def _without_waits(track: Track) -> Iterator[dict[str, Any]]:
    for action in track.simulation.starts:
        more = {"critical": False, "waits_for": [], "waited_on_by": []}
        yield _cell(track.simulation, action) | more


def _cell(simulation: Simulation, action: Action) -> dict[str, Any]:
    device, _ = simulation.table.places[action]
    times = {"start": simulation.starts[action], "end": simulation.ends[action]}
    return {"id": str(action), "device": device} | times


def _numbers(simulation: Simulation, activation_gb: float) -> list[list[str]]:
    most = max(simulation.peak_in_flight)
    chunks = " chunks" if simulation.table.chunks > 1 else ""
    found = [
        ["makespan", _shown(simulation.makespan)],
        ["busiest device works for", _shown(simulation.ideal)],
        ["bubble", _percent(simulation.bubble)],
        ["most in flight on a device", f"{most}{chunks}"],
    ]
    if activation_gb:
        found.append(["which are", _gigabytes(most, simulation, activation_gb)])
    return found


def _gigabytes(count: int, simulation: Simulation, activation_gb: float) -> str:
    return f"{_shown(count * activation_gb / simulation.table.chunks)} GB"


def _comparison(tracks: list[Track], found: Found | None) -> dict[str, Any]:
    """A row for each schedule, and for each that a searched one was compared with."""
    more = [Track(name, one) for name, one in found.named.items()] if found else []
    rows = []
    for track in [*tracks, *more]:
        one = track.simulation
        rows.append([
            track.name,
            _shown(one.makespan),
            _shown(one.makespan - one.ideal),
            _percent(one.bubble),
            _shown(max(one.idle_in_span_per_device)),
            " ".join(map(str, one.peak_in_flight)),
        ])  # fmt: skip
    headers = ["schedule", "makespan", "idle", "bubble", "idle in span", "in flight, by device"]
    return {
        "title": "Schedules",
        "headers": headers,
        "rows": rows,
        "numeric": [False, True, True, True, True, False],
    }


def _devices(simulation: Simulation, activation_gb: float) -> dict[str, Any]:
    columns = {
        "device": list(map(str, range(simulation.table.devices))),
        "works for": list(map(_shown, simulation.busy_per_device)),
        "bubble": list(map(_percent, simulation.bubble_per_device)),
        "in flight": list(map(str, simulation.peak_in_flight)),
    }
    if activation_gb:
        columns["GB in flight"] = [
            _shown(count * activation_gb / simulation.table.chunks)
            for count in simulation.peak_in_flight
        ]
    return {
        "title": "Devices",
        "headers": list(columns),
        "rows": [list(row) for row in zip(*columns.values(), strict=True)],
        "numeric": [True] * len(columns),
    }


def _notes(tracks: list[Track], found: Found | None) -> Iterator[str]:
    for track in tracks:
        if track.name in PUBLISHED:
            yield f"{track.name}, published: {PUBLISHED[track.name]}."
    if any(track.name in PUBLISHED for track in tracks):
        yield "p devices, m microbatches, v chunks on a device; r: the device, from 0."
    yield (
        "Idle is the makespan without the work of the busiest device; idle in span counts from a "
        "device's own first cell to its last."
    )
    if found and found.is_shortest:
        yield (
            f"No schedule of one stage on each device with at most {found.limit} in flight is "
            "shorter."
        )
    elif found:
        above = _percent(found.length / found.least - 1)
        least = _shown(found.least)
        yield f"No schedule is shorter than {least}; this one is {above} above that."


def _shown(value: Number) -> str:
    return f"{_settled(value):,.6g}"


def _percent(part: float) -> str:
    return f"{_settled(part):.1%}"


def _settled(value: Number) -> Number:
    """The number without what rounding has left of a difference that is 0."""
    return round(value, ROUNDED) + 0
