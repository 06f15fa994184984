"""Partial schedules, which grow by one action after the other.

Each device holds one stage. Microbatches are alike, so a device takes them in order, and all that
matters is how many actions of each kind it has done, and when. Some shortest schedule never lets a
device idle while it could have done another action, so only such schedules have to be tried.

Source: Giffler and Thompson 1960 (Algorithms for Solving Production-Scheduling Problems)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import Any, NamedTuple

from jaxpar.schedules.simulator import Costs, Number
from jaxpar.schedules.table import Action, Table


class Choice(NamedTuple):
    """An action that a device can do next.

    Attributes:
        horizon: Its end; of a backward, whole or in halves, the later of both ends.
        device: The device that does it.
        kind: Its kind.
        start: When it starts.
    """

    horizon: Number
    device: int
    kind: str
    start: Number


class Partial(NamedTuple):
    """The beginning of a schedule: every field but `trail` has an entry for each device.

    Attributes:
        forwards: How many are done.
        backwards: How many are done, whole ones and input gradients.
        weights: How many weight gradients are done, alone and in whole backwards.
        clocks: When its last action ends.
        inputs: When the inputs of its next forwards arrive, as far as that is known.
        gradients: The same for its next backwards.
        ready: What it can do next.
        trail: The last device and kind, and the trail before them.
    """

    forwards: tuple[int, ...]
    backwards: tuple[int, ...]
    weights: tuple[int, ...]
    clocks: tuple[Number, ...]
    inputs: tuple[tuple[Number, ...], ...]
    gradients: tuple[tuple[Number, ...], ...]
    ready: tuple[tuple[Choice, ...], ...]
    trail: Any

    @property
    def done(self) -> tuple[tuple[int, ...], ...]:
        """How many actions of each kind are done."""
        return self[:3]

    def is_as_early(self, other: Partial) -> bool:
        """Whether everything is there as early as in another one with the same actions."""
        mine = chain(self.clocks, *self.inputs, *self.gradients)
        its = chain(other.clocks, *other.inputs, *other.gradients)
        return all(a <= b for a, b in zip(mine, its, strict=True))

    def to_table(self) -> Table:
        """The table, with the microbatches numbered."""
        rows: list[list[str]] = [[] for _ in self.clocks]
        trail = self.trail
        while trail:
            device, kind, trail = trail
            rows[device].append(kind)
        return Table(tuple(_numbered(device, row[::-1]) for device, row in enumerate(rows)))


@dataclass(frozen=True)
class Problem:
    """What is to be scheduled.

    Attributes:
        stages: The number of devices, of which each holds one stage.
        microbatches: Their number.
        limit: The most microbatches in flight on a device.
        costs: The time of each kind of action, and of a transfer.
        span: Whether the time of a device counts from its own first action, and not from the first
            of all. The first action of device r always starts at r(F+P).
    """

    stages: int
    microbatches: int
    limit: int
    costs: Costs
    span: bool

    @cached_property
    def backward_kinds(self) -> str:
        """The kinds of backward that may be worth their time: "I", "B", or both."""
        if self.costs.I + self.costs.W <= self.costs.B:
            return "I"
        return "B" if self.costs.B <= self.costs.I else "IB"

    @cached_property
    def heads(self) -> list[Number]:
        """The time that does not count, at the beginning of each device."""
        hop = self.costs.F + self.costs.P
        return [device * hop if self.span else 0 for device in range(self.stages)]

    def length(self, partial: Partial) -> Number:
        """The time that a schedule takes so far."""
        return max(clock - head for clock, head in zip(partial.clocks, self.heads, strict=True))

    def start(self) -> Partial:
        """The empty schedule."""
        zeros, none = (0,) * self.stages, ((),) * (self.stages - 1)
        first = Choice(self.costs.F, 0, "F", 0)
        inputs = ((0,) * self.microbatches, *none)
        return Partial(
            zeros, zeros, zeros, zeros, inputs, ((), *none), ready=((first,), *none), trail=None
        )

    def choices(self, partial: Partial) -> list[Choice]:
        """What may come next: one of these begins a shortest way to the end.

        It is what one device can begin before it could have ended another action.
        """
        soonest = min((ready[0] for ready in partial.ready if ready), default=None)
        if soonest is None:
            return []
        until = soonest.horizon
        ready = partial.ready[soonest.device]
        return [one for one in ready if one.start < until or one.horizon <= until]

    def after(self, partial: Partial, choice: Choice) -> Partial:
        """The schedule with one more action."""
        forwards, backwards, weights, clocks, inputs, gradients, ready, trail = partial
        _, device, kind, start = choice
        end = start + getattr(self.costs, kind)
        neighbour = device + 1 if kind == "F" else device - 1
        arrival = end + self.costs.P
        if kind == "F":
            forwards = _put(forwards, device, forwards[device] + 1)
            inputs = _put(inputs, device, inputs[device][1:])
            if neighbour < self.stages:
                inputs = _put(inputs, neighbour, (*inputs[neighbour], arrival))
            else:
                gradients = _put(gradients, device, (*gradients[device], end))
        if kind in "IB":
            backwards = _put(backwards, device, backwards[device] + 1)
            gradients = _put(gradients, device, gradients[device][1:])
            if neighbour >= 0:
                gradients = _put(gradients, neighbour, (*gradients[neighbour], arrival))
        if kind in "WB":
            weights = _put(weights, device, weights[device] + 1)
        clocks = _put(clocks, device, end)
        trail = device, kind, trail
        new = Partial(forwards, backwards, weights, clocks, inputs, gradients, ready, trail)
        for changed in (device, neighbour):
            if 0 <= changed < self.stages:
                ready = _put(ready, changed, self._ready(new, changed))
        return new._replace(ready=ready)

    def _ready(self, partial: Partial, device: int) -> tuple[Choice, ...]:
        """What a device can do next; first what it could end first."""
        costs, clock = self.costs, partial.clocks[device]
        inputs, gradients = partial.inputs[device], partial.gradients[device]
        backwards, weights = partial.backwards[device], partial.weights[device]
        ready = []
        if inputs and partial.forwards[device] - weights < self.limit:
            start = max(clock, inputs[0])
            ready.append(Choice(start + costs.F, device, "F", start))
        if gradients:
            start = max(clock, gradients[0])
            horizon = start + max(getattr(costs, kind) for kind in self.backward_kinds)
            ready += [Choice(horizon, device, kind, start) for kind in self.backward_kinds]
        if weights < backwards:
            ready.append(Choice(clock + costs.W, device, "W", clock))
        return tuple(sorted(ready))


def _put(values: tuple, index: int, value: Any) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


def _numbered(stage: int, kinds: Sequence[str]) -> tuple[Action, ...]:
    """The actions of a row; a weight gradient is that of the earliest half that has none."""
    forwards, backwards = count(), count()
    halves: list[int] = []
    row = []
    for kind in kinds:
        if kind == "W":
            microbatch = halves.pop(0)
        else:
            microbatch = next(forwards if kind == "F" else backwards)
            halves += [microbatch] * (kind == "I")
        row.append(Action(stage, kind, microbatch))
    return tuple(row)
