"""A trace of some steps, and what it says of collectives: how long they take, and what is exposed.

A collective is exposed while its device computes nothing beside it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxpar.inspector.hlo_text import parse_hlo
from jaxpar.inspector.report import KINDS
from jaxpar.train.recipe import Recipe

WARM_UP, TRACED = 2, 3  # steps of a run that are taken before, and in the trace
COMPUTING = "computing"
OPCODES = {
    f"collective-{kind}" if kind in ("permute", "broadcast") else kind.replace("_", "-"): kind
    for kind in KINDS
}
CONTAINERS = frozenset({"while", "conditional", "call"})  # whose time is that of what is in them

Interval = tuple[float, float]


class Spent(NamedTuple):
    """What a device spends a step on, in the mean over devices and traced steps.

    Attributes:
        kind: of collective, or `COMPUTING`.
        seconds: how long it does so, with what else it does at the same time.
        exposed: of these, the seconds in which it computes nothing.
    """

    kind: str
    seconds: float
    exposed: float


@dataclass
class Profile:
    """The trace of a run, in process 0.

    Attributes:
        folder: where it is written, as TensorBoard and Perfetto read it.
        hlo: the text of the step that is run.
        taken: how many steps were taken so far.
        spent: what the trace says; empty before its end.
    """

    folder: Path
    hlo: str
    taken: int = 0
    spent: Sequence[Spent] = ()

    def __post_init__(self) -> None:
        self._tracing = ExitStack()

    def before_step(self) -> None:
        """Begins the trace, if it is time to."""
        if self.taken == WARM_UP:
            self._tracing.enter_context(jax.profiler.trace(self.folder))

    def after_step(self, results: Any) -> None:
        """Ends the trace, if it is time to, when the results of this step are there."""
        self.taken += 1
        if self.taken == WARM_UP + TRACED:
            jax.block_until_ready(results)
            self.close()
            newest = max(self.folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
            self.spent = spent(jax.profiler.ProfileData.from_file(str(newest)), self.hlo, TRACED)

    def close(self) -> None:
        """Ends the trace, if it has begun."""
        self._tracing.close()


def check_profile(folder: Path | None, recipe: Recipe, steps: int) -> None:
    """Checks what `jaxpar train --profile` asks for.

    Raises:
        ValueError: the run is too short, its step is several programs, or the folder is a file.
    """
    if folder is None:
        return
    least = (WARM_UP + TRACED) * (recipe.sync_every or 1)
    if steps < least:
        raise ValueError(
            f"train: --profile {folder} with --steps {steps}: {TRACED} steps are traced, or rounds "
            f"of them, after {WARM_UP} that are not; use --steps {least} or more"
        )
    if recipe.layout.offload != "none":
        raise ValueError(
            f"train: --profile {folder} with --offload: such a step is many programs, and its "
            "trace says little of collectives; leave one of the two out"
        )
    if recipe.ramp:
        raise ValueError(
            f"train: --profile {folder} with --batch-ramp: the steps that are traced are those of "
            "a smaller batch; leave one of the two out"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"train: --profile {folder}: {error.strerror}; give a folder that can be written"
        ) from None


def spent(trace: Any, hlo: str, steps: int) -> list[Spent]:
    """What the devices of a trace spent these steps of a program on: what takes longest is first.

    Args:
        trace: a `jax.profiler.ProfileData` of steps, each of which ran the program once.
        hlo: the text of the program as it was run.
        steps: how many there are.
    """
    opcodes = {
        name: one.opcode
        for computation in parse_hlo(hlo).computations.values()
        for name, one in computation.instructions.items()
    }
    found = re.match(r"HloModule ([\w.\-]+)", hlo)
    assert found
    by_device: dict[Any, dict[str, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    for device, name, interval in _operations(trace, found[1]):
        kind = _kind(opcodes.get(name, ""))
        if kind:
            by_device[device][kind].append(interval)
    seconds: dict[str, float] = defaultdict(float)
    exposed: dict[str, float] = defaultdict(float)
    for kinds in by_device.values():
        computing = _merged(kinds.get(COMPUTING, []))
        for kind, intervals in kinds.items():
            merged = _merged(intervals)
            seconds[kind] += _length(merged)
            exposed[kind] += _length(merged) - _overlap(merged, computing)
    each = 1e9 * steps * max(1, len(by_device))
    made = [Spent(kind, seconds[kind] / each, exposed[kind] / each) for kind in seconds]
    return sorted(made, key=lambda one: -one.seconds)


def _operations(trace: Any, module: str) -> Iterator[tuple[Any, str, Interval]]:
    """The device, the name and the nanoseconds of each operation of a program in a trace."""
    for plane in trace.planes:
        for line in plane.lines:
            for event in line.events:
                stats: Mapping[str, Any] = {name: value for name, value in event.stats if name}
                if stats.get("hlo_module") == module and "hlo_op" in stats:
                    # All simulated devices are in one plane; each other device has one of its own.
                    device = plane.name, stats.get("device_ordinal")
                    end = event.start_ns + event.duration_ns
                    yield device, str(stats["hlo_op"]), (event.start_ns, end)


def _kind(opcode: str) -> str | None:
    """The kind of collective, or `COMPUTING`; None: its time is that of others."""
    if opcode in CONTAINERS or opcode.endswith("-done"):
        return None
    return OPCODES.get(opcode.removesuffix("-start"), COMPUTING)


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time as intervals that neither touch nor overlap, in order."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _length(merged: Iterable[Interval]) -> float:
    return sum(end - start for start, end in merged)


def _overlap(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """How long both are there, of intervals that are merged."""
    total, i, j = 0.0, 0, 0
    while i < len(first) and j < len(second):
        total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return total
