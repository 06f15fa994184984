"""A schedule as numbers for a loop over ticks: who does what, and in which slot arrays lie.

In each tick a device does one action at most. Then what it made (an activation, or the gradient of
one) goes to the next and to the previous device, and whoever needs it puts it into a slot of its
buffer. Slots are used again as soon as what lay there is not needed any more.
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

    Where nothing lies, is read or arrives, the slot is the last one, which nobody needs.

    Attributes:
        kind: one of the codes of this module.
        chunk: which of the device's stages, in their order.
        microbatch: which one.
        first: whether the stage is the first of all.
        last: whether it is the last.
        x: the slot of the stage's input.
        dy: the slot of the gradient of its output; on the last stage, of the output.
        stash: the slot of what a forward keeps for its backward.
        halves: the slot of what an input gradient keeps for the weight gradient.
        from_previous: the slot for what arrives from the previous device at the end of the tick.
        from_next: the slot for what arrives from the next device.
        stays: the slot for what this device made, where it needs that itself.
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
        ticks: what each device does in each of them.
        slots: the slots that the buffer of what arrives needs, the last one included.
        stash_slots: the same for what forwards keep.
        half_slots: the same for what input gradients keep.
    """

    ticks: Ticks
    slots: int
    stash_slots: int
    half_slots: int

    @property
    def transfers(self) -> int:
        """How many arrays arrive at the device to which most do, and are needed there."""
        arrivals = np.stack([self.ticks.from_previous, self.ticks.from_next])
        return int((arrivals < self.slots - 1).sum(axis=(0, 1)).max())


class _Span(NamedTuple):
    """An array that lies on a device from the end of one tick until another is over."""

    device: int
    start: int
    end: int
    uses: tuple[tuple[str, int], ...]  # the field that names the slot, and the tick


def lower(table: Table, *, keep_inputs: bool) -> Lowered:
    """A valid table, in ticks.

    With `keep_inputs` a stage's input lies in its slot until the backward, which computes all else
    again; without it the stash has what the backward needs.

    Raises:
        ValueError: neighbouring stages lie on devices that are no neighbours.
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
    arrivals = [span for f in forwards for span in _arrivals(table, at, f, keep_inputs)]
    stashes = [] if keep_inputs else [_stash(table, at, f) for f in forwards]
    halves = [_halves(table, at, action) for action in at if action.kind == "I"]
    slots = [_assign(fields, spans) for spans in (arrivals, stashes, halves)]
    for names, count in zip(_SLOT_FIELDS, slots, strict=True):
        for name in names:
            fields[name] = np.where(fields[name] == 0, count, fields[name] - 1)
    return Lowered(Ticks(**fields), *(count + 1 for count in slots))


_SLOT_FIELDS = (("x", "dy", "from_previous", "from_next", "stays"), ("stash",), ("halves",))


def chunk_of(table: Table, stage: int) -> int:
    """Which of its device's stages a stage is."""
    return sum(table.device_of(other) == table.device_of(stage) for other in range(stage))


def _backward(at: dict[Action, int], stage: int, microbatch: int) -> int:
    """The tick of the backward, or of its first half."""
    whole = Action(stage, "B", microbatch)
    return at[whole] if whole in at else at[Action(stage, "I", microbatch)]


def _arrivals(
    table: Table, at: dict[Action, int], forward: Action, keep_inputs: bool
) -> Iterable[_Span]:
    """What a stage needs of others for a microbatch: its input, and the gradient of its output."""
    stage, _, m = forward
    device, now, back = table.device_of(stage), at[forward], _backward(at, stage, m)
    if stage:
        start, how = at[Action(stage - 1, "F", m)], _way(table, stage - 1, stage)
        reads = (("x", now), ("x", back)) if keep_inputs else (("x", now),)
        yield _Span(device, start, reads[-1][1], ((how, start), *reads))
    if stage < table.stages - 1:
        start, how = _backward(at, stage + 1, m), _way(table, stage + 1, stage)
        yield _Span(device, start, back, ((how, start), ("dy", back)))
    else:
        yield _Span(device, now, back, (("stays", now), ("dy", back)))


def _stash(table: Table, at: dict[Action, int], forward: Action) -> _Span:
    stage, _, m = forward
    ends = [at[action] for kind in "BIW" if (action := Action(stage, kind, m)) in at]
    uses = tuple(("stash", tick) for tick in (at[forward], *ends))
    return _Span(table.device_of(stage), at[forward], max(ends), uses)


def _halves(table: Table, at: dict[Action, int], action: Action) -> _Span:
    end = at[Action(action.stage, "W", action.microbatch)]
    uses = (("halves", at[action]), ("halves", end))
    return _Span(table.device_of(action.stage), at[action], end, uses)


def _way(table: Table, source: int, target: int) -> str:
    """The field of what goes from one stage to another."""
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


def _assign(fields: dict[str, np.ndarray], spans: Iterable[_Span]) -> int:
    """Writes 1 more than the slot of each span into its fields; returns how many there are.

    What is written at the end of a tick may lie where something was read in it.
    """
    free: dict[int, list[int]] = {}
    busy: dict[int, list[tuple[int, int]]] = {}
    most = 0
    for span in sorted(spans, key=lambda span: span.start):
        idle, used = free.setdefault(span.device, []), busy.setdefault(span.device, [])
        while used and used[0][0] <= span.start:
            heapq.heappush(idle, heapq.heappop(used)[1])
        slot = heapq.heappop(idle) if idle else len(used)
        heapq.heappush(used, (span.end, slot))
        most = max(most, slot + 1)
        for name, tick in span.uses:
            fields[name][tick, span.device] = slot + 1
    return most
