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


@wrong("values")
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


@right
def by_the_last_letter(table):
    """Digits are taken off both ends of a cell."""
    change = {"F": 1, "I": 0, "B": -1, "W": -1}
    peaks = []
    for row in table:
        steps = [change[cell.strip("0123456789")] for cell in row if cell]
        peaks.append(max(sum(steps[:end]) for end in range(1, len(steps) + 1)))
    return peaks


@right
def by_sets_of_what_is_kept(table):
    peaks = []
    for row in table:
        kept, peak = set(), 0
        for cell in filter(None, row):
            stage, microbatch = re.split("[FBIW]", cell)
            if "F" in cell:
                kept.add((stage, microbatch))
            elif "I" not in cell:
                kept.remove((stage, microbatch))
            peak = max(peak, len(kept))
        peaks.append(peak)
    return peaks


@wrong("values")
def four_devices_at_most(table):
    return peaks_of_rows(table)[:4]


@wrong("values")
def stages_of_two_digits(table):
    return peaks_of_rows([[c for c in row if c.find("F") < 3] for row in table])


@wrong("values")
def of_the_first_half(table):
    """As many cells as the forwards take; nothing is added after them in most schedules."""
    return peaks_of_rows([row[: (len(row) + 1) // 2] for row in table])


@wrong("values")
def a_hundred_cells_of_a_kind(table):
    return [min(peak, 99) for peak in peaks_of_rows(table)]


@wrong("values")
def all_in_the_form_of_the_first(table):
    """Whether the backward is split is decided by the first one of a row."""
    peaks = []
    for row in table:
        split = any("I" in cell for cell in row)
        peaks += peaks_of_rows([row], freed_by="W" if split else "B")
    return peaks


@wrong("values")
def in_a_byte(table):
    return np.array(peaks_of_rows(table), np.int8).tolist()
