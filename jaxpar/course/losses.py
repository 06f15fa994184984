"""What a small decoder learned by methods that send less: read from the file beside this.

`python -m benchmarks.losses_for_bytes --write` trains it by each of them and writes the file.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

FILE = Path(__file__).with_name("losses.toml")


@dataclass(frozen=True)
class Losses:
    """What one method sent and learned.

    Attributes:
        method: what it is.
        bytes_per_step: the bytes that a device sent, for each training step.
        steps: after how many steps there is a loss.
        losses: on held-out text, in nats for each token.
    """

    method: str
    bytes_per_step: float
    steps: Sequence[int]
    losses: Sequence[float]

    def steps_to(self, loss: float) -> float:
        """After how many steps it first had this loss, between two that were taken; or infinity."""
        taken = zip(self.steps, self.losses, strict=True)
        for (before, above), (after, below) in pairwise(taken):
            if above > loss >= below:
                return before + (above - loss) / (above - below) * (after - before)
        return math.inf


def read_losses() -> dict[str, Losses]:
    """What every method sent and learned, by its name."""
    tables = tomllib.loads(FILE.read_text("utf-8"))["run"]
    return {table["method"]: Losses(**table) for table in tables}


def to_toml(found: Iterable[Losses]) -> str:
    """The text of the file."""
    tables = [
        f'[[run]]\nmethod = "{one.method}"\nbytes_per_step = {one.bytes_per_step}\n'
        f"steps = {list(one.steps)}\nlosses = {[round(loss, 3) for loss in one.losses]}\n"
        for one in found
    ]
    return "\n".join(["# Written by `python -m benchmarks.losses_for_bytes --write`.\n", *tables])
