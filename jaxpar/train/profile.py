"""A trace of some steps: what the parts of a step take, what collectives take, and what is exposed.

A collective is exposed while its device computes nothing beside it. Parts are the scopes that the
decoder and the step give names to, by `jax.named_scope`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
PARTS = (
    "embedding", "attention", "mlp", "experts", "logits", "cross_entropy",
    "fetch", "reduce_gradients", "clip_gradients", "update_owned",
)  # fmt: skip
OTHER = "other"
FORWARD, RECOMPUTED, BACKWARD = PASSES = ("forward", "recomputed", "backward")
OP_NAME = re.compile(r'^\s*(?:ROOT )?%?([\w.\-]+) = .*op_name="([^"]*)"', re.MULTILINE)
CONTAINERS = frozenset({"while", "conditional", "call"})  # whose time is that of what is in them

Interval = tuple[float, float]
Key = TypeVar("Key")


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


class PartSpent(NamedTuple):
    """What a device spends a step on, in the mean over devices and traced steps, by its parts.

    Attributes:
        part: one of `PARTS`; of what is in none of them, the kind of a collective, or `OTHER`.
        of: one of `PASSES`; None: the part is not differentiated.
        seconds: how long something of it runs, collectives too.
    """

    part: str
    of: str | None
    seconds: float


@dataclass
class Profile:
    """The trace of a run, in process 0.

    Attributes:
        folder: where it is written, as TensorBoard and Perfetto read it.
        hlo: the text of the step that is run.
        taken: how many steps were taken so far.
        spent: what the trace says of collectives; empty before its end.
        parts: what it says of the parts of a step.
    """

    folder: Path
    hlo: str
    taken: int = 0
    spent: Sequence[Spent] = ()
    parts: Sequence[PartSpent] = ()

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
            trace = jax.profiler.ProfileData.from_file(str(newest))
            self.spent = spent(trace, self.hlo, TRACED)
            self.parts = parts(trace, self.hlo, TRACED)

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
    opcodes = _opcodes(hlo)
    by_device = _by_device(trace, hlo, lambda name: _kind(opcodes.get(name, "")))
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


def parts(trace: Any, hlo: str, steps: int) -> list[PartSpent]:
    """What the parts of a step take, with the arguments of `spent`: in the order of `PARTS`."""
    names = dict(OP_NAME.findall(hlo))
    opcodes = _opcodes(hlo)

    def key(name: str) -> tuple[str, str | None] | None:
        kind = _kind(opcodes.get(name, ""))
        if kind is None:
            return None
        return _part(names.get(name, ""), OTHER if kind == COMPUTING else kind)

    by_device = _by_device(trace, hlo, key)
    seconds: dict[tuple[str, str | None], float] = defaultdict(float)
    for found in by_device.values():
        for part, intervals in found.items():
            seconds[part] += _length(_merged(intervals))
    each = 1e9 * steps * max(1, len(by_device))
    order = (*PARTS, *KINDS, OTHER)
    made = [PartSpent(*part, total / each) for part, total in seconds.items()]
    return sorted(made, key=lambda one: (order.index(one.part), (None, *PASSES).index(one.of)))


def _part(op_name: str, otherwise: str) -> tuple[str, str | None]:
    """The part of a step that the name of an operation tells, and the pass that it belongs to."""
    words = re.findall(r"\w+", op_name)
    part = next((word for word in reversed(words) if word in PARTS), otherwise)
    if "rematted_computation" in words:
        return part, RECOMPUTED
    if "transpose(jvp" in op_name:
        return part, BACKWARD
    return part, FORWARD if "jvp" in words else None


def _opcodes(hlo: str) -> dict[str, str]:
    """The opcode of every instruction of a program, by its name."""
    return {
        name: one.opcode
        for computation in parse_hlo(hlo).computations.values()
        for name, one in computation.instructions.items()
    }


def _by_device(
    trace: Any, hlo: str, key: Callable[[str], Key | None]
) -> dict[Any, dict[Key, list[Interval]]]:
    """When each device runs what has a key, by this key; those of None are left out."""
    module = re.match(r"HloModule ([\w.\-]+)", hlo)
    assert module
    by_device: dict[Any, dict[Key, list[Interval]]] = defaultdict(lambda: defaultdict(list))
    for device, name, interval in _operations(trace, module[1]):
        found = key(name)
        if found is not None:
            by_device[device][found].append(interval)
    return by_device


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
