"""Answers to stash_size: right ones by other routes, and wrong ones."""

from __future__ import annotations

import re

import numpy as np

from jaxpar.contracts.base import wrong
from jaxpar.contracts.pipeline_schedules.stash_size import peaks_of_rows
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
def as_a_tuple(table):
    return tuple(peaks_of_rows(table))


@right
def changes_its_argument(table):
    peaks = peaks_of_rows(table)
    for row in table:
        row.clear()
    return peaks


@wrong("values")
def as_floats(table):
    return [float(peak) for peak in peaks_of_rows(table)]


@wrong("values")
def sum_over_devices(table):
    return sum(peaks_of_rows(table))


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
    steps = {"F": 1, "B": -1, "W": -1}
    peaks = []
    for row in table:
        kept = peak = 0
        for cell in filter(None, row):
            kept += steps.get(cell[1], 0)
            peak = max(peak, kept)
        peaks.append(peak)
    return peaks


@wrong("values")
def cut_to_the_shortest_row(table):
    columns = zip(*table, strict=False)
    return peaks_of_rows(zip(*columns, strict=True))


@wrong("values")
def freed_before_the_forward(table):
    """A backward right after a forward frees its place before that forward takes it."""
    return [max(peak - 1, 1) for peak in peaks_of_rows(table)]
