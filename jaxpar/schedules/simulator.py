"""Simulates a schedule: how long it takes, where it idles, and what it keeps in memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from jaxpar.schedules.rules import run
from jaxpar.schedules.table import KINDS, Action, Table

Number = int | float


@dataclass(frozen=True)
class Costs:
    """The time that one cell of each kind takes, and one transfer (P) to another device.

    A transfer keeps no device busy: its data arrives P later. Within a device it is free.
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
        table: the schedule that was simulated.
        costs: the times it was simulated with.
        starts: when each action starts.
        ends: when each action ends.
        critical_path: a longest chain of actions. Each one starts when the one before it has ended
            on the same device, or when the result of the one before it arrives from another
            device. The last one ends with the schedule.
    """

    table: Table
    costs: Costs
    starts: dict[Action, Number]
    ends: dict[Action, Number]
    critical_path: list[Action]

    @property
    def makespan(self) -> Number:
        """The time at which the last action ends; the first one starts at 0."""
        return max(self.ends.values())

    @property
    def busy_per_device(self) -> list[Number]:
        """The time for which each device works."""
        return [
            sum(getattr(self.costs, action.kind) for action in row if action)
            for row in self.table.rows
        ]

    @property
    def ideal(self) -> Number:
        """The busy time of the busiest device; no order can be faster."""
        return max(self.busy_per_device)

    @property
    def bubble_per_device(self) -> list[float]:
        """The fraction of the makespan for which each device idles."""
        makespan = self.makespan
        return [1 - busy / makespan if makespan else 0.0 for busy in self.busy_per_device]

    @property
    def bubble(self) -> float:
        """The fraction of the makespan for which the devices idle, on average."""
        return sum(self.bubble_per_device) / self.table.devices

    @property
    def idle_in_span_per_device(self) -> list[Number]:
        """The time for which each device idles between its own first start and its own last end."""
        idle = []
        for row, busy in zip(self.table.rows, self.busy_per_device, strict=True):
            start = min(self.starts[action] for action in row if action)
            end = max(self.ends[action] for action in row if action)
            idle.append(end - start - busy)
        return idle

    @property
    def peak_in_flight(self) -> list[int]:
        """The most activations that each device keeps at once, in chunks."""
        return peak_in_flight(self.table)


def simulate(table: Table, costs: Costs | None = None) -> Simulation:
    """Simulates a valid table: each action starts as soon as its device and its input are ready.

    Raises:
        ValueError: some devices wait for each other in a cycle.
    """
    costs = costs or Costs()
    cost = {kind: getattr(costs, kind) for kind in KINDS}
    homes = table.stage_devices
    starts: dict[Action, Number] = {}
    ends: dict[Action, Number] = {}
    latest: list[Action | None] = [None] * table.devices
    waited_for: dict[Action, Action | None] = {}  # the action that let this one start
    for device, action, needed in run(table):
        before = latest[device]
        start: Number = ends[before] if before else 0
        if needed:
            is_sent = homes[needed.stage] != device
            arrival = ends[needed] + (costs.P if is_sent else 0)
            if arrival > start:
                start, before = arrival, needed
        starts[action] = start
        ends[action] = start + cost[action.kind]
        latest[device], waited_for[action] = action, before
    path: list[Action] = []
    action = max(ends, key=lambda action: ends[action], default=None)
    while action:
        path.append(action)
        action = waited_for[action]
    return Simulation(table, costs, starts, ends, path[::-1])


def peak_in_flight(table: Table) -> list[int]:
    """The most activations that each device keeps at once, in chunks.

    The activations of a chunk for a microbatch are in flight from the start of F to the end of B,
    or of W where the backward is split. The number depends only on the order of a device's actions,
    and not on the costs.
    """
    return [max(_in_flight(row)) for row in table.rows]


def stash_size(table: list[list[str]]) -> list[int]:
    """How many activations each device must have room for, in chunks: one number per row.

    `table` has a row for each device, with cells such as "2F0": a stage, a kind and a microbatch.
    The kinds are F (forward), B (backward), and the two halves of a backward, I (input gradient)
    and W (weight gradient). An empty cell is idle. The activations of a cell F are kept from its
    start to the end of the B of the same stage and microbatch, or of the W where the backward is in
    two halves.

    Math: for each row, the most activations that are kept at once
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.1
    """
    return [max(_in_flight(row)) for row in Table.parse(table).rows]


def bubble_fraction(stages: int, microbatches: int, chunks: int) -> float:
    """The fraction of a pipeline's makespan that is idle, where every chunk takes equally long.

    `stages` is the number of devices. A chunk is a group of consecutive layers. In GPipe and 1F1B
    a device holds one chunk, its stage; in interleaved 1F1B (lesson 16) it holds `chunks` of them,
    which are not consecutive. A backward may take longer than a forward. Transfers take no time.

    Narayanan et al. divide idle time by work alone, which is another fraction. Huang et al. divide
    it by the makespan, as this function does.

    Math: idle time / (idle time + work), of any one device
    Source: Huang et al. 2019 (GPipe), section 2.3; with several chunks, Narayanan et al. 2021
        (Megatron-LM), section 2.2
    """
    return (stages - 1) / (chunks * microbatches + stages - 1)


def _in_flight(row: Sequence[Action | None]) -> list[int]:
    """The number of activations in flight during each cell of a row."""
    counts, kept = [0], 0
    for action in row:
        kept += bool(action) and action.kind == "F"
        counts.append(kept)
        kept -= bool(action) and action.kind in "BW"
    return counts
