"""How long it takes to generate, check and simulate a large pipeline schedule."""

import time

from benchmarks import Row
from jaxpar.schedules import NAMES, check, make_table, simulate

STAGES, MICROBATCHES = 64, 1024


def seconds(name: str) -> float:
    """The time from the name of a schedule to its makespan."""
    start = time.perf_counter()
    table = make_table(name, STAGES, MICROBATCHES)
    check(table)
    assert simulate(table).makespan > 0
    return time.perf_counter() - start


def rows() -> list[Row]:
    taken = {name: seconds(name) for name in NAMES}
    slowest = max(taken, key=lambda name: taken[name])
    what = f"generate, check and simulate {STAGES} stages and {MICROBATCHES} microbatches"
    return [Row(what, "5 s", f"{taken['1f1b']:.1f} s (1f1b), {taken[slowest]:.1f} s ({slowest})")]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
