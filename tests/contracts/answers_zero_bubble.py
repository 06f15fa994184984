"""Answers to ZB-H1 and to `stash_size`: right ones by other ways, and clever wrong ones."""

from __future__ import annotations

import re

import numpy as np


def _one_f_one_i(rank, stages, microbatches):
    """1F1B's row with I in place of B, without stages."""
    warm_up = min(stages - rank - 1, microbatches)
    row = [f"F{m}" for m in range(warm_up)]
    for m in range(microbatches):
        row += [f"F{m + warm_up}"] if m + warm_up < microbatches else []
        row.append(f"I{m}")
    return row


def _with_weights(rank, stages, microbatches, late, newest=False):
    row, waiting = [], []
    for one in _one_f_one_i(rank, stages, microbatches):
        row.append(f"{rank}{one}")
        if one[0] == "I":
            waiting.append(one[1:])
            if len(waiting) > late:
                row.append(f"{rank}W{waiting.pop(-1 if newest else 0)}")
    return row + [f"{rank}W{m}" for m in waiting]


def newest_weights_first(stages, microbatches):
    return [_with_weights(r, stages, microbatches, r, newest=True) for r in range(stages)]


def oldest_weights_first(stages, microbatches):
    return [_with_weights(r, stages, microbatches, r) for r in range(stages)]


def weights_when_idle(stages, microbatches):
    """Tick by tick: I if it can be, else F if no more than p are kept, else W."""
    rows = [[] for _ in range(stages)]
    counts = [dict.fromkeys("FIW", 0) for _ in range(stages)]
    done = {}
    tick = 0
    while any(count["W"] < microbatches for count in counts):
        for s, count in enumerate(counts):
            for kind in "IFW":
                m = count[kind]
                before = {
                    "F": done.get((s - 1, "F", m), -1 if s == 0 else tick),
                    "I": max(
                        done.get((s, "F", m), tick),
                        done.get((s + 1, "I", m), -1 if s == stages - 1 else tick),
                    ),
                    "W": done.get((s, "I", m), tick),
                }[kind]
                room = count["F"] - count["W"] < stages and count["F"] - count["I"] < stages - s
                if m < microbatches and before < tick and (kind != "F" or room):
                    rows[s].append(f"{s}{kind}{m}")
                    done[s, kind, m] = tick
                    count[kind] += 1
                    break
        tick += 1
    return rows


def whole_on_the_first(stages, microbatches):
    """The first device has no one to send to: its I and W may be one."""
    rows = oldest_weights_first(stages, microbatches)
    rows[0] = [cell.replace("I", "B") for cell in rows[0] if "W" not in cell]
    return rows


def whole_on_the_last(stages, microbatches):
    rows = oldest_weights_first(stages, microbatches)
    rows[-1] = [cell.replace("I", "B") for cell in rows[-1] if "W" not in cell]
    return rows


def one_weight_short(stages, microbatches):
    return [row[:-1] for row in oldest_weights_first(stages, microbatches)]


def weights_of_the_next(stages, microbatches):
    """W of a microbatch whose I is still to come."""
    return [
        [re.sub(r"W(\d+)", lambda m: f"W{microbatches - 1 - int(m[1])}", cell) for cell in row]
        for row in oldest_weights_first(stages, microbatches)
    ]


def gpipe_in_two(stages, microbatches):
    return [[f"{s}{kind}{m}" for kind in "FIW" for m in range(microbatches)] for s in range(stages)]


def by_half_of_the_rank(stages, microbatches):
    return [_with_weights(r, stages, microbatches, r // 2) for r in range(stages)]


def one_more_on_the_first(stages, microbatches):
    """It does one forward more before its first backward, which costs no time."""
    rows = oldest_weights_first(stages, microbatches)
    ahead = min(stages, microbatches)
    forward = [cell for cell in rows[0] if "F" in cell]
    rest = [cell for cell in rows[0] if "F" not in cell]
    both = [x for i, cell in enumerate(forward[ahead:]) for x in (*rest[2 * i : 2 * i + 2], cell)]
    early = forward[: ahead + 1] + [cell for cell in both if cell not in forward[: ahead + 1]]
    rows[0] = early + [cell for cell in rest if cell not in early]
    return rows


def with_numpy(table):
    steps = {"F": 1, "B": -1, "I": 0, "W": -1}
    peaks = []
    for row in table:
        kinds = [re.sub(r"\d", "", cell) for cell in row if cell]
        peaks.append(np.cumsum([steps[kind] for kind in kinds]).max())
    return np.array(peaks)


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


def by_intervals(table):
    peaks = []
    for row in table:
        ends = {
            re.sub("[BW]", "F", cell): i for i, cell in enumerate(row) if re.search("[BW]", cell)
        }
        spans = [(i, ends[cell]) for i, cell in enumerate(row) if "F" in cell]
        peaks.append(max(sum(a <= i <= b for a, b in spans) for i in range(len(row))))
    return tuple(peaks)


def as_floats(table):
    return [float(peak) for peak in with_sets(table)]


def sum_over_devices(table):
    return sum(with_sets(table))


def one_microbatch_digit(table):
    """Reads one digit of the stage and of the microbatch."""
    peaks = []
    for row in table:
        kept = peak = 0
        for cell in filter(None, row):
            kept += {"F": 1, "B": -1, "I": -1}.get(cell[1], 0)
            peak = max(peak, kept)
        peaks.append(peak)
    return peaks


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


def stages_of_one_digit(table):
    peaks = []
    for row in table:
        kept = peak = 0
        for cell in filter(None, row):
            kept += {"F": 1, "B": -1, "W": -1}.get(cell[1], 0)
            peak = max(peak, kept)
        peaks.append(peak)
    return peaks


def cut_to_the_shortest_row(table):
    columns = zip(*table, strict=False)
    return with_sets(zip(*columns, strict=True))


def freed_before_the_forward(table):
    """A backward right after a forward shares its place."""
    return [max(peak - 1, 1) for peak in with_sets(table)]


def changes_its_argument(table):
    peaks = with_sets(table)
    for row in table:
        row.clear()
    return peaks


RIGHT = {
    "zero_bubble_h1_schedule": (
        oldest_weights_first,
        newest_weights_first,
        whole_on_the_first,
    ),
    "stash_size": (
        with_numpy,
        with_sets,
        by_intervals,
        changes_its_argument,
    ),
}
WRONG = {
    "zero_bubble_h1_schedule": {
        one_weight_short: "order",
        weights_of_the_next: "order",
        gpipe_in_two: "bubble",
        by_half_of_the_rank: "bubble",
        whole_on_the_last: "bubble",
        weights_when_idle: "bubble",
        one_more_on_the_first: "in_flight",
    },
    "stash_size": {
        as_floats: "values",
        sum_over_devices: "values",
        one_microbatch_digit: "values",
        microbatches_of_one_digit: "values",
        stages_of_one_digit: "values",
        cut_to_the_shortest_row: "values",
        freed_before_the_forward: "values",
    },
}
