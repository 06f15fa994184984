"""Answers to stash_size: right ones by other routes, and wrong ones."""

from __future__ import annotations

import re

import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def with_numpy(table):
    steps = {"F": 1, "B": -1, "I": 0, "W": -1}
    peaks = []
    for row in table:
        kinds = [re.sub(r"\d", "", cell) for cell in row if cell]
        peaks.append(np.cumsum([steps[kind] for kind in kinds]).max())
    return np.array(peaks)


@right
def with_sets(table):
    peaks = []
    for row in table:
        kept, peak = set(), 0
        for cell in filter(None, row):
            kind = next(filter(str.isalpha, cell))
            stage, _, microbatch = cell.partition(kind)
            if kind == "F":
                kept.add((stage, microbatch))
            elif kind in "BW":
                kept.remove((stage, microbatch))
            peak = max(peak, len(kept))
        peaks.append(peak)
    return peaks


@right
def by_intervals(table):
    peaks = []
    for row in table:
        ends = {
            re.sub("[BW]", "F", cell): i for i, cell in enumerate(row) if re.search("[BW]", cell)
        }
        spans = [(i, ends[cell]) for i, cell in enumerate(row) if "F" in cell]
        peaks.append(max(sum(a <= i <= b for a, b in spans) for i in range(len(row))))
    return tuple(peaks)


@right
def changes_its_argument(table):
    peaks = with_sets(table)
    for row in table:
        row.clear()
    return peaks


@wrong("values")
def as_floats(table):
    return [float(peak) for peak in with_sets(table)]


@wrong("values")
def sum_over_devices(table):
    return sum(with_sets(table))


def _by_second_character(table, changes):
    peaks = []
    for row in table:
        kept = peak = 0
        for cell in filter(None, row):
            kept += changes.get(cell[1], 0)
            peak = max(peak, kept)
        peaks.append(peak)
    return peaks


@wrong("values")
def one_microbatch_digit(table):
    """Reads one digit of the stage and of the microbatch."""
    return _by_second_character(table, {"F": 1, "B": -1, "I": -1})


@wrong("values")
def microbatches_of_one_digit(table):
    peaks = []
    for row in table:
        kept, peak = set(), 0
        for cell in filter(None, row):
            key = cell[:-2], cell[-1]
            if cell[-2] in "BW":
                kept.discard(key)
            elif cell[-2] != "I":
                kept.add(key)
            peak = max(peak, len(kept))
        peaks.append(peak)
    return peaks


@wrong("values")
def stages_of_one_digit(table):
    return _by_second_character(table, {"F": 1, "B": -1, "W": -1})


@wrong("values")
def cut_to_the_shortest_row(table):
    columns = zip(*table, strict=False)
    return with_sets(zip(*columns, strict=True))


@wrong("values")
def freed_before_the_forward(table):
    """A backward right after a forward shares its place."""
    return [max(peak - 1, 1) for peak in with_sets(table)]
