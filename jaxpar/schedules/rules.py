"""The rules of a valid schedule, and an order in which the actions of its table can run."""

from collections.abc import Iterator
from itertools import count

from jaxpar.schedules.table import KINDS, Action, Place, Table, place_name


def check(table: Table) -> None:
    """Raises an error if a table is not a valid schedule.

    Each stage is on one device and takes each microbatch once: forward, and backward in one piece
    (B) or in two (I, then W). A microbatch goes forward through all stages, and then backward
    through all of them. No two devices wait for each other, directly or through others.

    Raises:
        ValueError: a rule is broken; the message names the row and the cell, counted from 1.
    """
    _check_once(table)
    _check_complete(table)
    _check_rows(table)
    for _ in run(table):
        pass


Step = tuple[int, Action, Action | None]  # a device, an action, and the action that it waits for


def run(table: Table) -> Iterator[Step]:
    """Yields the actions of a table in an order in which they can run.

    Raises:
        ValueError: some devices wait for each other in a cycle, which the message shows.
    """
    queues = [[action for action in row if action] for row in table.rows]
    position = [0] * table.devices
    done: set[Action] = set()
    waiting: dict[Action, list[int]] = {}
    ready = list(range(table.devices - 1, -1, -1))
    while ready:
        device = ready.pop()
        queue = queues[device]
        while position[device] < len(queue):
            action = queue[position[device]]
            needed = table.needs(action)
            if needed is not None and needed not in done:
                waiting.setdefault(needed, []).append(device)
                break
            yield device, action, needed
            done.add(action)
            position[device] += 1
            ready += waiting.pop(action, [])
    stuck = {device: needed for needed, devices in waiting.items() for device in devices}
    if stuck:
        raise _cycle(table, queues, position, stuck)


def to_ticks(table: Table) -> Table:
    """The same table with idle cells added, so that each column is a tick.

    An action takes one tick, and what it needs is done in an earlier tick.
    """
    ticks: dict[Action, int] = {}
    rows: list[list[Action | None]] = [[] for _ in table.rows]
    for device, action, needed in run(table):
        row = rows[device]
        tick = len(row) if needed is None else max(len(row), ticks[needed] + 1)
        row += [None] * (tick - len(row)) + [action]
        ticks[action] = tick
    return Table(tuple(tuple(row) for row in rows))


def _check_once(table: Table) -> None:
    """Checks that no action appears twice, no stage is on two devices, and no row is empty."""
    if not table.rows:
        raise ValueError(
            "schedule: row 1, cell 1: no rows; a table has one for each device; add it"
        )
    first: dict[Action, Place] = {}
    homes: dict[int, Place] = {}
    for device, row in enumerate(table.rows):
        if not any(row):
            raise ValueError(
                f"schedule: {place_name((device, 0))}: the row has no action; each device has a "
                "stage; give it one, or remove the row"
            )
        for cell, action in enumerate(row):
            if action is None:
                continue
            place = device, cell
            if first.setdefault(action, place) is not place:
                raise _wrong(
                    place,
                    action,
                    f"it is there twice, also in {place_name(first[action])}",
                    "a stage takes each microbatch once",
                    "remove one",
                )
            home = homes.setdefault(action.stage, place)
            if home[0] != device:
                raise _wrong(
                    place,
                    action,
                    f"stage {action.stage} is on two devices, also in {place_name(home)}",
                    "a stage is on one device only",
                    f"move the cell to row {home[0] + 1}",
                )


def _check_complete(table: Table) -> None:
    """Checks that no stage, no microbatch, no forward and no backward is missing."""
    stages = _numbers_without_gap(table, "stage")
    microbatches = _numbers_without_gap(table, "microbatch")
    done: dict[tuple[int, str], set[int]] = {
        (stage, kind): set() for stage in stages for kind in KINDS
    }
    for stage, kind, microbatch in table.places:
        done[stage, kind].add(microbatch)
    for stage in stages:
        forward, whole, inputs, weights = (done[stage, kind] for kind in "FBIW")
        for microbatch in whole & (inputs | weights):
            half = Action(stage, "I" if microbatch in inputs else "W", microbatch)
            raise _wrong(
                table.places[half],
                half,
                f"{stage}B{microbatch} is the same backward in one",
                "a backward is a B, or an I and a W",
                "remove the one or the other",
            )
        for kind, wanted in (
            ("F", microbatches - forward),
            ("B", microbatches - whole - inputs - weights),
            ("I", weights - inputs),
            ("W", inputs - weights),
        ):
            for microbatch in sorted(wanted):
                raise _missing(table, Action(stage, kind, microbatch))


def _numbers_without_gap(table: Table, name: str) -> set[int]:
    """The numbers of the stages or of the microbatches, after checking that none is missing."""
    found = {getattr(action, name) for action in table.places}
    gap = next(number for number in count() if number not in found)
    for action, place in table.places.items():
        if getattr(action, name) > gap:
            raise _wrong(
                place,
                action,
                f"{name} {gap} is missing",
                f"a table has every {name} from 0 on",
                f"add {name} {gap}",
            )
    return found


def _missing(table: Table, missing: Action) -> ValueError:
    """The error about a missing action, reported at the most closely related one."""
    # For a missing I or W that is the other half, for anything else a forward.
    wants_forward = missing.kind not in "IW"
    near = min(
        (action for action in table.places if action.microbatch == missing.microbatch),
        key=lambda action: (action.stage != missing.stage, (action.kind == "F") != wants_forward),
    )
    return _wrong(
        table.places[near],
        near,
        f"{missing} is missing",
        "each stage takes each microbatch forward (F) and backward (B, or I and W)",
        f"add {missing} to row {table.device_of(missing.stage) + 1}",
    )


def _check_rows(table: Table) -> None:
    """Checks that each row takes a microbatch forward, then backward, through its stages in order.

    The depth of an action counts the stages that its microbatch has passed before, forward and
    backward; in a row it may not decrease.
    """
    for row in table.rows:
        latest: dict[int, tuple[int, Action]] = {}
        halved: set[tuple[int, int]] = set()
        for action in row:
            if action is None:
                continue
            stage, kind, microbatch = action
            if kind == "W":
                if (stage, microbatch) not in halved:
                    raise _too_early(table, action, Action(stage, "I", microbatch))
                continue
            if kind == "I":
                halved.add((stage, microbatch))
            depth = stage if kind == "F" else 2 * table.stages - stage
            before = latest.get(microbatch)
            if before and before[0] > depth:
                raise _too_early(table, before[1], action)
            latest[microbatch] = depth, action


def _too_early(table: Table, action: Action, needed: Action) -> ValueError:
    return _wrong(
        table.places[action],
        action,
        f"it comes before {needed} (cell {table.places[needed][1] + 1}), which it needs",
        "a microbatch goes forward through all stages, then backward through all; I before W",
        f"move {needed} before it",
    )


def _wrong(place: Place, action: Action, received: str, allowed: str, do: str) -> ValueError:
    return ValueError(f"schedule: {place_name(place)} ({action}): {received}; {allowed}; {do}")


def _cycle(
    table: Table, queues: list[list[Action]], position: list[int], stuck: dict[int, Action]
) -> ValueError:
    """The error about devices that wait for each other, which lists them."""
    path: list[int] = []
    device = next(iter(stuck))
    while device not in path:
        path.append(device)
        device = table.device_of(stuck[device].stage)
    path = path[path.index(device) :]
    waits = []
    for device in path:
        action = queues[device][position[device]]
        cell = table.places[action][1] + 1
        waits.append(f"row {device + 1} waits at cell {cell} ({action}) for {stuck[device]}")
    first = queues[path[0]][position[path[0]]]
    return _wrong(
        table.places[first],
        first,
        f"this order can never run: {', '.join(waits)}",
        "a device must not wait for one that waits for it",
        f"move {stuck[path[-1]]} before that cell of its row",
    )
