"""Whether any schedule is short enough: all orders of every device, without the library's search.

Each device holds one stage. Microbatches are alike, so each device takes them in order.
"""

from dataclasses import dataclass
from typing import NamedTuple

from jaxpar.schedules import Costs


class Device(NamedTuple):
    """What a device has done, until when, and the kind of action that it waits for."""

    forwards: int = 0
    backwards: int = 0
    weights: int = 0
    clock: float = 0
    waits: str = ""


State = tuple[tuple[Device, ...], tuple[tuple, ...], tuple[tuple, ...]]


@dataclass(frozen=True)
class Question:
    """Whether a schedule of these sizes keeps the limit and ends by `until`.

    With `span`, the time of device r counts from r(F+P), when its first action starts.
    """

    stages: int
    microbatches: int
    limit: int
    costs: Costs
    until: float
    span: bool

    def is_possible(self) -> bool:
        """Lets the device whose clock is first decide what it does next, in every way."""
        none = ((),) * (self.stages - 1)
        start = (Device(),) * self.stages, ((0,) * self.microbatches, *none), ((), *none)
        todo: list[State] = [start]
        seen = set()
        while todo:
            state = todo.pop()
            if state in seen or self.is_late(state):
                continue
            seen.add(state)
            devices = state[0]
            left = [device for device in devices if device.weights < self.microbatches]
            if not left:
                return True
            free = [device for device in left if not device.waits]
            if free:
                first = devices.index(min(free, key=lambda device: device.clock))
                todo += [self.after(state, first, kind) for kind in self.kinds(devices[first])]
        return False

    def is_late(self, state: State) -> bool:
        """Whether the work that a device has left ends after the time."""
        costs, backward = self.costs, min(self.costs.B, self.costs.I + self.costs.W)
        for place, (forwards, backwards, weights, clock, _) in enumerate(state[0]):
            work = (self.microbatches - forwards) * costs.F
            work += (self.microbatches - backwards) * backward + (backwards - weights) * costs.W
            if clock + work > self.until + self.span * place * (costs.F + costs.P):
                return True
        return False

    def kinds(self, device: Device) -> list[str]:
        """What a device may decide to do next, or to wait for."""
        kinds = ["W"] * (device.weights < device.backwards)
        kinds += ["I", "B"] * (device.backwards < device.forwards)
        room = device.forwards - device.weights < self.limit
        return kinds + ["F"] * (room and device.forwards < self.microbatches)

    def after(self, state: State, place: int, kind: str) -> State:
        """The state when a device has done it; or when it waits for it, and others do."""
        devices, inputs, gradients = state
        device = devices[place]
        queue = {"F": inputs[place], "W": (device.clock,)}.get(kind, gradients[place])
        if not queue:
            return put(devices, place, device._replace(waits=kind)), inputs, gradients
        end = max(device.clock, queue[0]) + getattr(self.costs, kind)
        done = Device(
            device.forwards + (kind == "F"),
            device.backwards + (kind in "IB"),
            device.weights + (kind in "WB"),
            end,
        )
        devices = put(devices, place, done)
        target = place + {"F": 1, "W": 0}.get(kind, -1)
        if kind == "F":
            inputs = put(inputs, place, queue[1:])
            if target < self.stages:
                inputs = put(inputs, target, (*inputs[target], end + self.costs.P))
            else:
                gradients = put(gradients, place, (*gradients[place], end))
        elif kind != "W":
            gradients = put(gradients, place, queue[1:])
            if target >= 0:
                gradients = put(gradients, target, (*gradients[target], end + self.costs.P))
        state = devices, inputs, gradients
        if 0 <= target < self.stages and (waits := devices[target].waits):
            return self.after(state, target, waits)
        return state


def put(values: tuple, place: int, value: object) -> tuple:
    return (*values[:place], value, *values[place + 1 :])
