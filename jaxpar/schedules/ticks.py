"""Lowers a schedule to arrays for a loop over ticks: what each device does, and in which slots.

In each tick, a device does at most one action. Its output, an activation or the gradient with
respect to one, is then sent to the next and to the previous device, and a device that needs it
stores it in a slot of its buffer. A slot is reused as soon as its content is no longer needed.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from jaxpar.schedules.rules import to_ticks
from jaxpar.schedules.table import Action, Table

IDLE, FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(5)
CODES = {"F": FORWARD, "B": BACKWARD, "I": INPUT_GRADIENT, "W": WEIGHT_GRADIENT}


class Ticks(NamedTuple):
    """What each device does in each tick; every field is an array [ticks, devices].

    Where nothing is read or stored, the slot is the last one, whose content is never used.

    Attributes:
        kind: the kind of the action, as one of the codes of this module.
        chunk: the number of the stage among the stages of the device.
        microbatch: the number of the microbatch.
        first: whether the stage is the first of all stages.
        last: whether the stage is the last of all stages.
        x: the slot of the stage's input.
        dy: the slot of the gradient with respect to the stage's output; on the last stage, the slot
            of the output itself.
        stash: the slot of what a forward keeps for its backward.
        halves: the slot of what an input gradient keeps for the weight gradient.
        from_previous: the slot for what arrives from the previous device at the end of the tick.
        from_next: the slot for what arrives from the next device at the end of the tick.
        stays: the slot for this device's own output, where the device itself needs it.
    """

    kind: np.ndarray
    chunk: np.ndarray
    microbatch: np.ndarray
    first: np.ndarray
    last: np.ndarray
    x: np.ndarray
    dy: np.ndarray
    stash: np.ndarray
    halves: np.ndarray
    from_previous: np.ndarray
    from_next: np.ndarray
    stays: np.ndarray


class Lowered(NamedTuple):
    """A schedule for a loop over ticks.

    Attributes:
        ticks: what each device does in each tick.
        slots: the number of slots of the buffer, including the unused last one.
        stash_slots: the same for what forwards keep.
        half_slots: the same for what input gradients keep.
    """

    ticks: Ticks
    slots: int
    stash_slots: int
    half_slots: int

    @property
    def transfers(self) -> int:
        """The most arrays that any one device receives and needs."""
        arrivals = np.stack([self.ticks.from_previous, self.ticks.from_next])
        return int((arrivals < self.slots - 1).sum(axis=(0, 1)).max())


class _Lifetime(NamedTuple):
    """The time for which a device keeps an array: from the end of tick `start` to that of `end`.

    Attributes:
        uses: for each use, the field that gets the slot, and the tick.
    """

    device: int
    start: int
    end: int
    uses: tuple[tuple[str, int], ...]


def lower(table: Table, *, keep_inputs: bool) -> Lowered:
    """Lowers a valid table.

    With `keep_inputs`, a stage's input stays in its slot until the backward, which recomputes all
    the rest. Without it, the stash holds what the backward needs.

    Raises:
        ValueError: neighbouring stages are on devices that are not neighbours.
    """
    columns = to_ticks(table)
    at = {action: tick for action, (_, tick) in columns.places.items()}
    shape = (max(map(len, columns.rows)), table.devices)
    fields = {name: np.zeros(shape, np.int32) for name in Ticks._fields}
    chunks = [chunk_of(table, stage) for stage in range(table.stages)]
    for action, (device, tick) in columns.places.items():
        here = (tick, device)
        fields["kind"][here] = CODES[action.kind]
        fields["chunk"][here] = chunks[action.stage]
        fields["microbatch"][here] = action.microbatch
        fields["first"][here] = action.stage == 0
        fields["last"][here] = action.stage == table.stages - 1
    forwards = [action for action in at if action.kind == "F"]
    buffered = [span for action in forwards for span in _buffered(table, at, action, keep_inputs)]
    stashes = [] if keep_inputs else [_stash(table, at, action) for action in forwards]
    halves = [_halves(table, at, action) for action in at if action.kind == "I"]
    slots = [_assign_slots(fields, lifetimes) for lifetimes in (buffered, stashes, halves)]
    # A field is now 0 where it has no slot, and one more than the slot elsewhere.
    for names, count in zip(_SLOT_FIELDS, slots, strict=True):
        for name in names:
            fields[name] = np.where(fields[name] == 0, count, fields[name] - 1)
    return Lowered(Ticks(**fields), *(count + 1 for count in slots))


_SLOT_FIELDS = (("x", "dy", "from_previous", "from_next", "stays"), ("stash",), ("halves",))


def chunk_of(table: Table, stage: int) -> int:
    """The number of a stage among the stages of its device."""
    return sum(table.device_of(other) == table.device_of(stage) for other in range(stage))


def _backward(at: dict[Action, int], stage: int, microbatch: int) -> int:
    """The tick of a backward, or of its first half."""
    whole = Action(stage, "B", microbatch)
    return at[whole] if whole in at else at[Action(stage, "I", microbatch)]


def _buffered(
    table: Table, at: dict[Action, int], forward: Action, keep_inputs: bool
) -> Iterable[_Lifetime]:
    """What a stage buffers for a microbatch: its input, and the gradient of its output."""
    stage, _, microbatch = forward
    device, tick = table.device_of(stage), at[forward]
    backward_tick = _backward(at, stage, microbatch)
    if stage:
        start = at[Action(stage - 1, "F", microbatch)]
        end = backward_tick if keep_inputs else tick
        reads = {("x", tick), ("x", end)}
        yield _Lifetime(device, start, end, ((_route(table, stage - 1, stage), start), *reads))
    if stage < table.stages - 1:
        start, field = _backward(at, stage + 1, microbatch), _route(table, stage + 1, stage)
    else:
        start, field = tick, "stays"
    yield _Lifetime(device, start, backward_tick, ((field, start), ("dy", backward_tick)))


def _stash(table: Table, at: dict[Action, int], forward: Action) -> _Lifetime:
    stage, _, microbatch = forward
    backwards = [Action(stage, kind, microbatch) for kind in "BIW"]
    ends = [at[action] for action in backwards if action in at]
    uses = tuple(("stash", tick) for tick in (at[forward], *ends))
    return _Lifetime(table.device_of(stage), at[forward], max(ends), uses)


def _halves(table: Table, at: dict[Action, int], action: Action) -> _Lifetime:
    end = at[Action(action.stage, "W", action.microbatch)]
    uses = (("halves", at[action]), ("halves", end))
    return _Lifetime(table.device_of(action.stage), at[action], end, uses)


def _route(table: Table, source: int, target: int) -> str:
    """The field with the slot for what one stage sends to another."""
    p, start, end = table.devices, table.device_of(source), table.device_of(target)
    if start == end:
        return "stays"
    if (start + 1) % p == end:
        return "from_previous"
    if (end + 1) % p == start:
        return "from_next"
    raise ValueError(
        f"schedule: stage {source} is on device {start} and stage {target} on device {end}; what "
        "one stage sends goes to a neighbour; put the stages next to each other"
    )


def _assign_slots(fields: dict[str, np.ndarray], lifetimes: Iterable[_Lifetime]) -> int:
    """Gives each array a slot, writes one more than the slot into its fields, and counts the slots.

    A slot that is read in a tick may be written at the end of the same tick.
    """
    free: dict[int, list[int]] = {}  # slots by device
    used: dict[int, list[tuple[int, int]]] = {}  # (end, slot) by device
    count = 0
    for lifetime in sorted(lifetimes, key=lambda lifetime: lifetime.start):
        device_free = free.setdefault(lifetime.device, [])
        device_used = used.setdefault(lifetime.device, [])
        while device_used and device_used[0][0] <= lifetime.start:
            heapq.heappush(device_free, heapq.heappop(device_used)[1])
        slot = heapq.heappop(device_free) if device_free else len(device_used)
        heapq.heappush(device_used, (lifetime.end, slot))
        count = max(count, slot + 1)
        for name, tick in lifetime.uses:
            fields[name][tick, lifetime.device] = slot + 1
    return count
