"""What exercises on pipeline schedules have in common: sizes, costs, and rows of cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from jaxpar.contracts.base import Call
from jaxpar.schedules import Costs

EQUAL_COSTS = Costs(F=2, B=2, I=1, W=1)
BACKWARD_TWICE = Costs(F=1, B=2, I=1, W=1)
BOTH_COSTS = "with B = F and with B = 2F"

Rows = list[list[str]]  # the cells of each device


def pipeline_sizes(rng: np.random.Generator) -> list[Call]:
    """A few sizes, among them fewer microbatches than stages; then enough to fill the pipeline."""
    sizes = [(2, 1), (4, 2), (1, 3)]
    for p in (3, *(int(n) for n in rng.integers(4, 7, 2))):
        sizes.append((p, 2 * p - 1 + int(rng.integers(3))))
    p = int(rng.integers(7, 10))
    sizes.append((p, 3 * p + int(rng.integers(p))))  # numbers of two digits
    return [(pair, {}) for pair in sizes]


def cells_of_stage(stage: int, work: Iterable[str]) -> list[str]:
    """The cells of one stage, from their kinds; the microbatches of each kind come in order."""
    counts: Counter[str] = Counter()
    cells = []
    for kind in work:
        cells.append(f"{stage}{kind}{counts[kind]}")
        counts[kind] += 1
    return cells
