"""The most activations that each device of a schedule keeps at once."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.pipeline_tables import Rows
from jaxpar.schedules import Table, make_table, stash_size, to_ticks

# Each device keeps most after its first backward, device 0 in cells beyond the row of device 1.
_UNEVEN = [
    ["0F0", "", "", "0B0", "", "", "0F1", "0F2", "", "0B2", "0B1"],
    ["1F0", "1B0", "1F1", "1F2", "1B2", "1B1"],
]


def _tables(rng: np.random.Generator) -> list[Call]:
    """Tables of all forms, some with their idle cells, the smallest first; then random ones.

    The last ones have more devices, stages or microbatches than anyone would take for the most.
    """
    m = int(rng.integers(5, 8))
    made = [
        make_table("gpipe", 1, 2),
        make_table("zb-h1", 1, 2),
        Table.parse([["0F0", "", "0B0"], ["", "1F0", "1B0"]]),
        Table.parse(_UNEVEN),
        make_table("interleaved", 2, 2, 2),
        to_ticks(make_table("1f1b", 3, m + 6)),
        make_table("zb-h2", 3, m),
        make_table("zb-v", 2, m),
        make_table("dualpipe-v", 2, m),
        to_ticks(make_table("interleaved", 2, 4, int(rng.integers(2, 4)))),
        _random_table(rng, 1, 1, m),
        _random_table(rng, 2, 2, 3),
        _random_table(rng, 4, 1, 4),
        make_table("breadth-first", 2, 11, 6),  # numbers of two digits
        make_table("breadth-first", 1, 1, 11),
        make_table("1f1b", 17, 3),
        make_table("gpipe", 2, 128 + m),  # of three
        make_table("gpipe", 101 + m, 1),
    ]
    return [((table.to_rows(),), {}) for table in made]


def _random_table(rng: np.random.Generator, devices: int, chunks: int, microbatches: int) -> Table:
    """What can be done next, by chance, until all is done; some backwards in two, idle cells."""
    stages = range(devices * chunks)
    left = {(s, m): ["FB", "FIW"][rng.integers(2)] for s in stages for m in range(microbatches)}

    def can_be_next(s: int, m: int) -> bool:
        if left[s, m].startswith("F"):
            return s == 0 or not left[s - 1, m].startswith("F")
        return left[s, m] == "W" or s == stages[-1] or left[s + 1, m] in ("", "W")

    rows: list[list[str]] = [[] for _ in range(devices)]
    while any(left.values()):
        ready = [place for place, kinds in left.items() if kinds and can_be_next(*place)]
        s, m = ready[rng.integers(len(ready))]
        rows[s % devices] += [f"{s}{left[s, m][0]}{m}"] + [""] * int(rng.integers(2))
        left[s, m] = left[s, m][1:]
    return Table.parse(rows)


CONTRACT = Contract(
    kind="value",
    task="return how many activations each device must have room for: for each row, the peak",
    reference=stash_size,
    oracle=stash_size,
    values=_tables,
    hints=(
        "Go through a row from left to right with one number: how many activations the device "
        "keeps now. Return the greatest value that it has on the way.",
        "F adds one. B takes one away, and so does W; I does not, as its W still needs what the "
        "forward kept. Empty cells change nothing.",
        "The kind is the one letter in the cell: next(c for c in cell if c.isalpha()).",
    ),
    minimal="A device does one cell after the other, so its order alone tells what it keeps: no "
    "costs, and no other device, are needed.",
    harder="Count what W needs apart from what I needs: after I, only the inputs of the products "
    "and the gradients of their outputs are kept.",
)


def _change(cell: str, freed_by: str = "BW") -> int:
    """By how much the number of activations grows: one more for F, one less for what frees."""
    return ("F" in cell) - any(kind in cell for kind in freed_by)


def peaks_of_rows(table: Rows, *, freed_by: str = "BW", idle: int = 0) -> list[int]:
    """The peak of each row, where an idle cell adds `idle`."""
    peaks = []
    for row in table:
        kept = peak = 0
        for cell in row:
            kept += _change(cell, freed_by) if cell else idle
            peak = max(peak, kept)
        peaks.append(peak)
    return peaks


@wrong("values")
def stash_freed_at_i(table: Rows) -> list[int]:
    """I frees the activations, but W still needs them; let W free them."""
    return peaks_of_rows(table, freed_by="BI")


@wrong("values")
def stash_freed_twice(table: Rows) -> list[int]:
    """I and W both free the activations of one microbatch; only W does."""
    return peaks_of_rows(table, freed_by="BIW")


@wrong("values")
def stash_freed_by_b_only(table: Rows) -> list[int]:
    """Where the backward is split in two, nothing is freed; W must free the activations, as B
    does."""
    return peaks_of_rows(table, freed_by="B")


@wrong("values")
def stash_never_freed(table: Rows) -> list[int]:
    """All forwards are counted; take one away for each B, and for each W."""
    return peaks_of_rows(table, freed_by="")


@wrong("values")
def stash_idle_cells_counted(table: Rows) -> list[int]:
    """Idle cells count as forwards; they change nothing."""
    return peaks_of_rows(table, idle=1)


@wrong("values")
def stash_left_at_the_end(table: Rows) -> list[int]:
    """This is what is left at the end of a row; return the greatest number on the way."""
    return [sum(map(_change, row)) for row in table]


@wrong("values")
def stash_forwards_first(table: Rows) -> list[int]:
    """Only the forwards before the first backward are counted, but more can be in flight later; go
    through the whole row."""
    counts = []
    for row in table:
        backward = next(i for i, cell in enumerate(row) if cell and "F" not in cell)
        counts.append(sum("F" in cell for cell in row[:backward]))
    return counts


@wrong("values")
def stash_after_the_backward(table: Rows) -> list[int]:
    """The number is taken after each backward; it is greatest while a forward runs, before the
    backward that frees."""
    peaks = []
    for row in table:
        work = [cell for cell in row if cell]
        kept = [sum(map(_change, work[:end])) for end in range(len(work) + 1)]
        after = [k for k, cell in zip(kept[1:], work, strict=True) if "F" not in cell]
        peaks.append(max(after))
    return peaks


@wrong("values")
def stash_microbatches_not_chunks(table: Rows) -> list[int]:
    """A microbatch that is in flight in two chunks counts once, but each chunk keeps activations of
    its own; count cells."""
    peaks = []
    for row in table:
        kept: list[str] = []
        peak = 0
        for cell in row:
            microbatch = cell.lstrip("0123456789")[1:]
            if "F" in cell:
                kept.append(microbatch)
            elif "B" in cell or "W" in cell:
                kept.remove(microbatch)
            peak = max(peak, len(set(kept)))
        peaks.append(peak)
    return peaks


@wrong("values")
def stash_worst_device_for_all(table: Rows) -> list[int]:
    """Each device has the number of the worst one; give each row its own."""
    peaks = peaks_of_rows(table)
    return [max(peaks)] * len(peaks)


@wrong("values")
def stash_formula_of_1f1b(table: Rows) -> list[int]:
    """This is the formula of 1F1B; other tables keep more or less, so go through the cells."""
    p, m = len(table), sum("F" in cell for cell in table[0])
    return [min(m, p - rank) for rank in range(p)]


@wrong("values")
def stash_as_floats(table: Rows) -> list[float]:
    """The numbers are floats, as those of np.zeros and jnp.zeros are; count in integers."""
    return [float(peak) for peak in peaks_of_rows(table)]
