"""How long a schedule takes, where it idles, and what it keeps: a simulation of its events."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from jaxpar.schedules.rules import run
from jaxpar.schedules.table import KINDS, Action, Table

Number = int | float


@dataclass(frozen=True)
class Costs:
    """The time of one cell of each kind, and of one transfer to another device.

    A transfer keeps no device busy: what it carries arrives P later. On one device it is free.
    """

    F: Number = 1
    B: Number = 2
    I: Number = 1  # noqa: E741 - the letter of the cell
    W: Number = 1
    P: Number = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            cost = getattr(self, field.name)
            if not (math.isfinite(cost) and cost >= 0):
                raise ValueError(
                    f"Costs: {field.name} is {cost}; a cost is a finite number, 0 or more; "
                    "use for example F=1, B=2, I=1, W=1, P=0"
                )


@dataclass(frozen=True)
class Simulation:
    """When each action runs, and what follows from that.

    Attributes:
        table: what was simulated.
        costs: the times it was simulated with.
        starts: when each action starts.
        ends: when each action ends.
        critical_path: a longest chain. Each action starts when the one before it has ended, on
            its device, or elsewhere with its result sent; the last ends with the schedule.
    """

    table: Table
    costs: Costs
    starts: dict[Action, Number]
    ends: dict[Action, Number]
    critical_path: list[Action]

    @property
    def makespan(self) -> Number:
        """When the last action ends; the first starts at 0."""
        return max(self.ends.values())

    @property
    def busy_per_device(self) -> list[Number]:
        """The time that each device works."""
        return [
            sum(getattr(self.costs, action.kind) for action in row if action)
            for row in self.table.rows
        ]

    @property
    def ideal(self) -> Number:
        """The busy time of the busiest device: no order is faster."""
        return max(self.busy_per_device)

    @property
    def bubble_per_device(self) -> list[float]:
        """The idle share of the makespan, for each device."""
        makespan = self.makespan
        return [1 - busy / makespan if makespan else 0.0 for busy in self.busy_per_device]

    @property
    def bubble(self) -> float:
        """The idle share of the makespan, over all devices."""
        return sum(self.bubble_per_device) / self.table.devices

    @property
    def idle_in_span_per_device(self) -> list[Number]:
        """The time that each device idles between its own first start and its own last end."""
        return [
            max(self.ends[action] for action in row if action)
            - min(self.starts[action] for action in row if action)
            - busy
            for row, busy in zip(self.table.rows, self.busy_per_device, strict=True)
        ]

    @property
    def peak_in_flight(self) -> list[int]:
        """The most activations that each device keeps at once, in chunks."""
        return peak_in_flight(self.table)


def simulate(table: Table, costs: Costs | None = None) -> Simulation:
    """Run a table that `check` accepts: each action as soon as its device and its input are there.

    Raises:
        ValueError: the devices wait for one another in a circle.
    """
    costs = costs or Costs()
    cost = {kind: getattr(costs, kind) for kind in KINDS}
    homes = table.stage_devices
    starts: dict[Action, Number] = {}
    ends: dict[Action, Number] = {}
    latest: list[Action | None] = [None] * table.devices
    blamed: dict[Action, Action | None] = {}  # what an action waited for last
    for device, action, needed in run(table):
        blame = latest[device]
        start: Number = ends[blame] if blame else 0
        if needed:
            sent = homes[needed.stage] != device
            arrival = ends[needed] + (costs.P if sent else 0)
            if arrival > start:
                start, blame = arrival, needed
        starts[action] = start
        ends[action] = start + cost[action.kind]
        latest[device], blamed[action] = action, blame
    path: list[Action] = []
    step = max(ends, key=lambda action: ends[action], default=None)
    while step:
        path.append(step)
        step = blamed[step]
    return Simulation(table, costs, starts, ends, path[::-1])


def peak_in_flight(table: Table) -> list[int]:
    """The most activations that each device keeps at once, in chunks.

    A chunk's activations of a microbatch are in flight from the start of F to the end of B, or of W
    where the backward is split. A device does one action after the other, so its order alone tells
    how many that are, whatever the costs.
    """
    return [max(_in_flight(row)) for row in table.rows]


def stash_size(table: list[list[str]]) -> list[int]:
    """How many activations each device must have room for, in chunks: one number per row.

    `table` has a row per device, of cells such as "2F0": a stage, a kind (F forward, B backward, or
    the two halves of a backward: I input gradient, W weight gradient) and a microbatch. An empty
    cell is idle. The activations of a cell F are kept from its start to the end of the B of the
    same stage and microbatch, or of W where the backward is in two.

    Math: for each row, the most that are kept at once
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.1
    """
    return [max(_in_flight(row)) for row in Table.parse(table).rows]


def bubble_fraction(stages: int, microbatches: int, chunks: int) -> float:
    """The idle share of a pipeline's makespan, where every chunk takes equally long.

    `stages` is the number of devices, which hold `chunks` chunks each: 1 for GPipe and 1F1B, more
    for interleaved 1F1B. A backward may take longer than a forward. Transfers take no time.

    Math: idle time / (idle time + work), of any one device
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2
    """
    return (stages - 1) / (chunks * microbatches + stages - 1)


def _in_flight(row: Sequence[Action | None]) -> list[int]:
    """How many are in flight during each cell of a row."""
    counts, kept = [0], 0
    for action in row:
        kept += bool(action) and action.kind == "F"
        counts.append(kept)
        kept -= bool(action) and action.kind in "BW"
    return counts
