"""What exercises on pipeline schedules have in common: sizes, costs, and rows of cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from jaxpar.contracts.base import Call
from jaxpar.schedules import Costs, Table
from jaxpar.schedules.table import Action

EQUAL_COSTS = Costs(F=2, B=2, I=1, W=1)
BACKWARD_TWICE = Costs(F=1, B=2, I=1, W=1)
BOTH_COSTS = "with B = F and with B = 2F"

Rows = list[list[str]]  # the cells of each device


def pipeline_sizes(rng: np.random.Generator) -> list[Call]:
    """Stages and microbatches, small ones first, more than anyone would take for the most last.

    Whatever the seed, there are fewer microbatches than stages, as many, more, but too few to fill
    the pipeline (up to 2p - 2), just enough, and many; and even and odd numbers of each.
    """
    sizes = [(2, 1), (4, 2), (1, 3), (1, 1), (2, 2), (3, 4), (4, 4), (4, 5), (5, 8), (6, 5)]
    for p in (3, *(int(n) for n in rng.integers(4, 7, 2))):
        sizes.append((p, 2 * p - 1 + int(rng.integers(3))))
    p = int(rng.integers(7, 10))
    sizes += [(p, int(rng.integers(p, 2 * p - 1))), (p, 3 * p + int(rng.integers(p)))]
    p = int(rng.integers(17, 20))  # stages and microbatches of two digits, then of three
    sizes += [(p, p - 3), (p, 2 * p - 3)]
    sizes.append((int(rng.integers(2, 4)), int(rng.integers(129, 150))))
    return [(pair, {}) for pair in sizes]


def cells_of_stage(stage: int, work: Iterable[str]) -> list[str]:
    """The cells of one stage, from their kinds; the microbatches of each kind come in order."""
    counts: Counter[str] = Counter()
    cells = []
    for kind in work:
        cells.append(f"{stage}{kind}{counts[kind]}")
        counts[kind] += 1
    return cells


def passes(table: Table) -> list[list[Action]]:
    """The forwards and backwards of each device in order, where I is the backward of I and W."""
    return [[action for action in row if action and action.kind != "W"] for row in table.rows]


def kinds_differ(table: Table, model: Table) -> str | None:
    """The first forward in place of a backward, or backward in place of a forward, in words."""
    for device, (mine, right) in enumerate(zip(passes(table), passes(model), strict=True)):
        for place, (action, other) in enumerate(zip(mine, right, strict=True)):
            if (action.kind == "F") != (other.kind == "F"):
                forwards = sum(one.kind == "F" for one in mine[:place])
                must = "forward" if other.kind == "F" else "backward"
                return (
                    f"device {device} does {action} after {_count(forwards, 'forward')} and "
                    f"{_count(place - forwards, 'backward')}, where a {must} must come"
                )
    return None


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"
