"""A schedule as an answer returns it: plain data of any kind, read as a table, and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxpar.contracts.base import PipelineLimits
from jaxpar.drawing.schedule import Timeline, Track
from jaxpar.schedules import Costs, Simulation, Table, check, simulate
from jaxpar.schedules.simulator import Number

MOST_CELLS = 10_000
PICTURE_WIDTH = 76


@dataclass(frozen=True)
class Costed:
    """A table that can run, simulated with the costs of a contract."""

    table: Table
    simulations: tuple[Simulation, ...]

    @classmethod
    def of(cls, table: Table, limits: PipelineLimits) -> Costed:
        """The table with these costs."""
        return cls(table, tuple(simulate(table, costs) for costs in limits.costs))

    @property
    def makespans(self) -> list[Number]:
        """The makespan with each of the costs."""
        return [simulation.makespan for simulation in self.simulations]

    @property
    def in_flight(self) -> list[int]:
        """The most activations that each device keeps at once."""
        return self.simulations[0].peak_in_flight


def read(value: Any, model: Table) -> Table:
    """The table in an answer's result, for as many devices, stages and microbatches as `model`.

    Raises:
        ValueError: it is none, it can never run, or it is one for other sizes.
    """
    table = Table.parse(_rows(value, model.devices))
    check(table)
    for name in ("stages", "microbatches"):
        has, must = getattr(table, name), getattr(model, name)
        if has != must:
            raise ValueError(f"{name}: it has {has}, and must have {must}, counted from 0")
    for stage in range(model.stages):
        at, home = table.device_of(stage), model.device_of(stage)
        if at != home:
            raise ValueError(f"stage {stage} is in row {at + 1}; device {home} is row {home + 1}")
    return table


def actions(value: Any) -> Any:
    """Rows without what is idle, to be compared; any other data as it is."""
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        return value
    return [[cell for cell in row if cell] for row in value]


def draw(name: str, simulation: Simulation) -> str:
    """When each device does what, as lines of text without colour."""
    track = Track(name, simulation)
    return Timeline((track,)).to_text(PICTURE_WIDTH).partition(f"\n{track.heading}")[0]


def in_words(costs: Costs, table: Table) -> str:
    """The costs of the kinds of cell in a table."""
    kinds = sorted({action.kind for action in table.places}, key="FBIW".index)
    return " ".join(f"{kind}={getattr(costs, kind)}" for kind in kinds)


def _rows(value: Any, devices: int) -> list[list]:
    """The result, if it is rows of not too many cells; what the cells are is not asked here."""
    if not isinstance(value, list):
        shown = value if isinstance(value, str) else repr(value)
        raise ValueError(f"the result is {shown[:80]}; return a list of rows, one for each device")
    for device, row in enumerate(value):
        if not isinstance(row, list):
            raise ValueError(
                f"row {device + 1} is {repr(row)[:40]}; a row is a list of cells such as '0F0'"
            )
    if len(value) != devices:
        raise ValueError(f"it has {len(value)} rows, and must have {devices}, one for each device")
    cells = sum(map(len, value))
    if cells > MOST_CELLS:
        raise ValueError(
            f"it has {cells:,} cells, and at most {MOST_CELLS:,} are read; leave idle cells out"
        )
    return value
