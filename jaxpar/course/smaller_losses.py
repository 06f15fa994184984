"""What a small decoder loses when its matrices are made smaller: read from the file beside this.

`python -m benchmarks.losses_when_smaller --write` trains it, makes it smaller, and writes the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("smaller_losses.toml")


@dataclass(frozen=True)
class Smaller:
    """A decoder whose matrices were made smaller in one way.

    Attributes:
        way: what was done.
        bits: of a number of its layers' matrices, with its part of the scales.
        loss: on held-out text, in nats for each token.
    """

    way: str
    bits: float
    loss: float


def read_smaller() -> dict[str, Smaller]:
    """What was measured, by the name of the way."""
    tables = tomllib.loads(FILE.read_text("utf-8"))["way"]
    return {table["way"]: Smaller(**table) for table in tables}


def to_toml(found: Iterable[Smaller]) -> str:
    """The text of the file."""
    tables = [
        f'[[way]]\nway = "{one.way}"\nbits = {round(one.bits, 4)}\nloss = {round(one.loss, 4)}\n'
        for one in found
    ]
    first = "# Written by `python -m benchmarks.losses_when_smaller --write`.\n"
    return "\n".join([first, *tables])
