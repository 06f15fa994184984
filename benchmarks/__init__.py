"""What is measured: each module here has `rows()`; `python -m benchmarks` prints them all."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of a table in docs/benchmarks.md, numbers with their units."""

    what: str
    target: str
    measured: str
