"""What a step sends over each group of axes: as its program is counted, and as its schedule runs.

The program of a pipeline has a branch for each kind of action in every tick, and the inspector
counts them all. The schedule says which of them a device takes.
"""

from typing import NamedTuple

import numpy as np

from jaxpar.inspector.report import Collective, Report
from jaxpar.schedules import ticks
from jaxpar.schedules.ticks import Ticks, lower
from jaxpar.train.recipe import Recipe


class Sent(NamedTuple):
    """The bytes that a device sends in a step over a group of axes.

    Attributes:
        axes: the axes, in mesh order.
        at_most_bytes: with every branch of the program counted.
        by_schedule_bytes: with the branches that the busiest device takes.
    """

    axes: tuple[str, ...]
    at_most_bytes: float
    by_schedule_bytes: float


def sent_over_axes(report: Report, recipe: Recipe) -> tuple[Sent, ...]:
    """What a step sends over each group of axes, from what the inspector found."""
    of_devices: dict[tuple[str, ...], np.ndarray] = {}
    for one in report.collectives:
        so_far = of_devices.get(one.axes, np.zeros(recipe.layout.pp))
        of_devices[one.axes] = so_far + _times(one, recipe) * one.wire_bytes
    at_most = report.wire_bytes_by_axis()
    return tuple(Sent(axes, at_most[axes], float(each.max())) for axes, each in of_devices.items())


def _times(one: Collective, recipe: Recipe) -> np.ndarray:
    """How often each stage of the pipeline runs a collective."""
    times = np.full(recipe.layout.pp, float(one.times or 0))
    if not one.branches or not recipe.table:
        return times
    keeps = recipe.keeps_inputs
    rows = lower(recipe.table, keep_inputs=keeps).ticks
    taken = _taken(rows, one.branches, keeps_inputs=keeps)
    return times * taken.sum(axis=0) / len(rows.kind)


def _taken(rows: Ticks, branches: tuple[int, ...], *, keeps_inputs: bool) -> np.ndarray:
    """In which ticks each device takes a branch of the loop in `jaxpar.parallel.pipeline`."""
    present = [kind for kind in ticks.CODES.values() if np.any(rows.kind == kind)]
    kind = present[branches[0]]
    # The conditions inside of an action, in the order in which the loop asks for them.
    conditions = [rows.first]
    if kind != ticks.FORWARD:
        conditions = [rows.last, *[rows.first] * keeps_inputs, rows.first]
    taken = rows.kind == kind
    return taken & (conditions[branches[1]] == 1) if len(branches) > 1 else taken
