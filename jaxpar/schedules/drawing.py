"""Schedules drawn: a row of cells for each device, each cell as wide as it takes time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from jaxpar.schedules.generators import make_table
from jaxpar.schedules.simulator import Number, Simulation, simulate
from jaxpar.schedules.table import KINDS, Action

if TYPE_CHECKING:
    from rich.text import Text

# Four of Okabe and Ito's colours, for every kind of colour vision; I, half of a B, is near to B.
COLOURS = {"F": "#56B4E9", "B": "#E69F00", "I": "#F0E442", "W": "#009E73"}


class Cell(NamedTuple):
    """An action as it is drawn.

    Attributes:
        labels: What may stand in the cell, longest first: "4F0", "f0", "f". A small letter is a
            chunk after the device's first.
    """

    start: Number
    end: Number
    colour: str
    labels: tuple[str, str, str]

    @property
    def duration(self) -> Number:
        """The time that the action takes."""
        return self.end - self.start


@dataclass(frozen=True)
class Track:
    """One schedule of a drawing.

    Attributes:
        name: What stands above it.
        simulation: When its actions run.
        paper: The published schedule that it is to be compared with, if there is one.
    """

    name: str
    simulation: Simulation
    paper: str = ""

    def rival(self, name: str, chunks: int | None = None) -> Track:
        """A published schedule of the same sizes and the same work, to be drawn beneath.

        Where a stage is half as many layers, a cell costs half as much.

        Raises:
            ValueError: there is no such schedule, or it does not take these sizes.
        """
        mine, costs = self.simulation.table, self.simulation.costs
        table = make_table(name, mine.devices, mine.microbatches, chunks)
        if table.stages != mine.stages:
            share = mine.stages / table.stages
            cells = {kind: getattr(costs, kind) * share for kind in KINDS}
            costs = replace(costs, **cells)
        return Track(name, simulate(table, costs), name)

    @property
    def title(self) -> str:
        """The name, the sizes, and the cost of each kind of cell."""
        table, costs = self.simulation.table, self.simulation.costs
        sizes = {
            "device": table.devices,
            "chunk": table.chunks if table.chunks > 1 else 0,
            "microbatch": table.microbatches,
        }
        texts = [_counted(count, noun) for noun, count in sizes.items() if count]
        letters = [kind for kind in KINDS if kind in self.kinds] + ["P"] * bool(costs.P)
        prices = " ".join(f"{letter}={getattr(costs, letter):g}" for letter in letters)
        return f"{self.name}: {', '.join(texts)}; {prices}"

    @property
    def share(self) -> float:
        """The part of a device's layers that a chunk is."""
        return 1 / self.simulation.table.chunks

    @property
    def heading(self) -> str:
        """What stands above the activations in flight."""
        chunks = self.simulation.table.chunks
        unit = f", in chunks ({chunks} are a whole device)" if chunks > 1 else ""
        return f"activations in flight{unit}"

    @cached_property
    def kinds(self) -> set[str]:
        """The kinds of its actions."""
        return {action.kind for action in self.simulation.table.places}

    @cached_property
    def cells(self) -> list[list[Cell]]:
        """What to draw for each device; actions that cost nothing have no width."""
        return [
            [cell for action in row if action and (cell := self._cell(action)).duration]
            for row in self.simulation.table.rows
        ]

    def in_flight(self, device: int) -> Iterator[tuple[Number, int]]:
        """The times at which the number of activations in flight changes, and that number."""
        changes: dict[Number, int] = {}
        for action in self.simulation.table.rows[device]:
            if action and action.kind != "I":
                forward = action.kind == "F"
                time = (self.simulation.starts if forward else self.simulation.ends)[action]
                changes[time] = changes.get(time, 0) + (1 if forward else -1)
        return zip(changes, accumulate(changes.values()), strict=True)

    def _cell(self, action: Action) -> Cell:
        later = self._chunks[action.stage] > 0
        letter = action.kind.lower() if later else action.kind
        short = f"{letter}{action.microbatch}"
        return Cell(
            self.simulation.starts[action],
            self.simulation.ends[action],
            lighter(COLOURS[action.kind]) if later else COLOURS[action.kind],
            (str(action) if self.simulation.table.chunks > 1 else short, short, letter),
        )

    @cached_property
    def _chunks(self) -> dict[int, int]:
        """For each stage how many earlier stages its device has."""
        devices: list[int] = []
        chunks: dict[int, int] = {}
        for stage, device in sorted(self.simulation.table.stage_devices.items()):
            chunks[stage] = devices.count(device)
            devices.append(device)
        return chunks


@dataclass(frozen=True)
class Drawing:
    """Schedules one above the other, to one time scale, with what they keep beneath each."""

    tracks: tuple[Track, ...]

    def __post_init__(self) -> None:
        for track in self.tracks:
            if not track.simulation.makespan:
                raise ValueError(
                    f"Drawing: the cells of {track.name} take no time; a cell is as wide as it "
                    "takes time; give F or B a cost above 0"
                )

    @property
    def makespan(self) -> Number:
        """The end of the longest."""
        return max(track.simulation.makespan for track in self.tracks)

    @property
    def peak(self) -> float:
        """The most activations in flight on any device, in whole devices."""
        return max(max(track.simulation.peak_in_flight) * track.share for track in self.tracks)

    @property
    def cells(self) -> list[Cell]:
        """All cells of all schedules."""
        return [cell for track in self.tracks for row in track.cells for cell in row]

    @property
    def legend(self) -> list[tuple[str, str]]:
        """The letter and the meaning of each kind of cell, in the order of the grammar."""
        kinds = set[str]().union(*(track.kinds for track in self.tracks))
        return [(kind, meaning) for kind, meaning in KINDS.items() if kind in kinds]

    @property
    def chunks(self) -> int:
        """The most stages on one device."""
        return max(track.simulation.table.chunks for track in self.tracks)

    def to_rich(self, width: int = 80) -> Text:
        """The drawing for a terminal of `width` columns."""
        from jaxpar.schedules.drawing_text import draw

        return draw(self, width)

    def to_text(self, width: int = 80) -> str:
        """The drawing as lines without colour."""
        return "\n".join(line.rstrip() for line in self.to_rich(width).plain.splitlines())

    def to_svg(self) -> str:
        """The drawing as an SVG file."""
        from jaxpar.schedules.drawing_svg import draw

        return draw(self)

    def _repr_svg_(self) -> str:
        return self.to_svg()  # what a notebook shows


def lighter(colour: str) -> str:
    """Half way to white."""
    return "#" + "".join(f"{(int(colour[i : i + 2], 16) + 256) // 2:02X}" for i in (1, 3, 5))


def ruler(until: Number, least_step: float) -> Iterator[float]:
    """Round times from 0 to `until`, at least `least_step` apart."""
    power = 10.0 ** math.floor(math.log10(least_step))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= least_step)
    for number in range(int(until / step) + 1):
        yield number * step


def _counted(count: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{count} {noun if count == 1 else plural}"
