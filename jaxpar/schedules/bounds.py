"""A time that no way to end a partial schedule can beat: a lower bound of its length.

All work must be done, but a device also waits: for the first gradient, until which it may begin no
more forwards than the limit allows, and for microbatches to come back, without which there is no
room for the next ones. After its last backward, the gradient still has to reach the first device.

A whole backward counts like two halves that take as long together as the better of both ways.
"""

from __future__ import annotations

from jaxpar.schedules.partial import Partial, Problem
from jaxpar.schedules.simulator import Number


class Bounds:
    """The lower bounds of the partial schedules of a problem."""

    def __init__(self, problem: Problem) -> None:
        costs = problem.costs
        self._problem = problem
        self._first = min(costs.I, costs.B)  # the least time until a gradient can be sent on
        self._rest = min(costs.B, costs.I + costs.W) - self._first
        self._hop = costs.F + self._first + 2 * costs.P  # to the next stage and back
        self._fresh = [self._times(device) for device in range(problem.stages)]

    @property
    def work(self) -> Number:
        """The least time that a device works on a microbatch."""
        return self._problem.costs.F + self._first + self._rest

    @property
    def least(self) -> Number:
        """No schedule is shorter than this."""
        return self(self._problem.start())

    def __call__(self, partial: Partial) -> Number:
        """No schedule with this beginning is shorter than this."""
        forwards = self._forward_ends(partial)
        gradients = self._gradient_ends(partial, forwards[-1])
        return max(
            self._bound(partial, device, forwards[device], gradients[device])
            for device in range(self._problem.stages)
        )

    def _times(self, device: int) -> list[Number]:
        """The least time that each number of microbatches takes, by that number.

        It is counted from the start of their first forward on a device to its end.
        """
        problem = self._problem
        trip = self.work + (problem.stages - 1 - device) * self._hop
        times: list[Number] = [0]
        for number in range(1, problem.microbatches + 1):
            others = range(device, problem.stages)
            ways = [self._by_way_of(device, other, number) for other in others]
            if number > problem.limit:  # the rest begins when the first one has come back
                ways.append(trip + times[number - problem.limit])
            times.append(max(ways))
        return times

    def _by_way_of(self, device: int, other: int, number: int) -> Number:
        """The least time of so many microbatches, where another device is what takes long."""
        problem, forward = self._problem, self._problem.costs.F
        full = min(problem.limit, number)
        until_gradient = forward + (problem.stages - 1 - other) * self._hop
        idle = max(0, until_gradient - full * forward)
        if other == device:
            return idle + number * self.work
        until_last = idle + number * (forward + self._first) + (number - full) * self._rest
        return (other - device) * self._hop + until_last + self._rest

    def _forward_ends(self, partial: Partial) -> list[Number]:
        """The earliest end of the next forward of each device; any number if it has none left."""
        problem, arrival = self._problem, 0
        ends = []
        for device, clock in enumerate(partial.clocks):
            arrivals, weights = partial.inputs[device], partial.weights[device]
            start = max(clock, arrivals[0] if arrivals else arrival)
            if partial.forwards[device] - weights == problem.limit:  # a W must make room
                gradient = self._first if weights == partial.backwards[device] else 0
                start = max(start, clock + gradient + self._rest)
            ends.append(start + problem.costs.F)
            arrival = ends[-1] + problem.costs.P
        return ends

    def _gradient_ends(self, partial: Partial, forward: Number) -> list[Number]:
        """The earliest time at which each device can send the gradient of its next backward.

        Args:
            partial: The beginning of the schedule.
            forward: The earliest end of the next forward of the last device.
        """
        arrival, ends = forward, []
        for clock, arrivals in zip(partial.clocks[::-1], partial.gradients[::-1], strict=True):
            ends.append(max(clock, arrivals[0] if arrivals else arrival) + self._first)
            arrival = ends[-1] + self._problem.costs.P
        return ends[::-1]

    def _bound(self, partial: Partial, device: int, forward: Number, gradient: Number) -> Number:
        """A time before which a device, or the first one because of it, does not end.

        Args:
            partial: The beginning of the schedule.
            device: The device.
            forward: The earliest end of its next forward.
            gradient: The earliest time at which it can send its next gradient.
        """
        problem, costs = self._problem, self._problem.costs
        clock, head = partial.clocks[device], problem.heads[device]
        new = problem.microbatches - partial.forwards[device]
        back = problem.microbatches - partial.backwards[device]
        halves = partial.backwards[device] - partial.weights[device]
        if not back:
            return clock + halves * costs.W - head
        room = min(new, problem.limit - partial.forwards[device] + partial.backwards[device])
        idle = gradient - self._first - clock - halves * costs.W - room * costs.F
        until_last = clock + max(idle, 0) + new * costs.F + back * self._first
        ends = [until_last + back * self._rest + halves * costs.W - head]
        weights = problem.microbatches - problem.limit - partial.weights[device]
        if weights > 0:  # so many come before the last forward: each makes room for one
            until_last += weights * self._rest
            made = (clock if halves else gradient) + self._rest
            ends.append(made + self._fresh[device][weights] - head)
        if new:
            ends.append(forward - costs.F + self._fresh[device][new] - head)
        ends.append(until_last + device * (self._first + costs.P) + self._rest)
        return max(ends)
