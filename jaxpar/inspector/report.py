"""The report of the inspector: what a program sends, stores and computes, as plain data."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from jaxpar.cost.communication import Kind as Kind

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Collective:
    """One collective of a program, with the bytes of one execution on one device.

    Attributes:
        kind: The kind of collective.
        axes: The mesh axes along which its groups extend, in mesh order.
        group_size: The number of devices in a group, in the largest one if they differ.
        dtype: JAX's name of the element type; several, joined by "+", for a mixed tuple.
        operand_bytes: The size of its input on one device: the shard of an all_gather, the full
            input of a reduce_scatter.
        wire_bytes: What one device sends with a ring algorithm; for a permute, the busiest device.
        times: Its executions in one run of the program; None where a loop's length is unknown.
        conditional: Whether it is inside a branch, so that it may not run at all.
        branches: The conditionals that it is inside of, outermost first: each by its number among
            those that are equally deep inside the same ones. Empty where only HLO was read.
        pairs: For a permute, (source, target) positions along its axes, in row-major order and
            without those that send to themselves; None if groups differ, and for other kinds.
        source: "file:line" of the innermost Python frame outside JAX.
    """

    kind: Kind
    axes: tuple[str, ...]
    group_size: int
    dtype: str
    operand_bytes: int
    wire_bytes: int | float
    times: int | None = 1
    conditional: bool = False
    branches: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] | None = None
    source: str | None = None

    @property
    def total_wire_bytes(self) -> int | float | None:
        """The wire bytes of all executions; None where their number is unknown."""
        return None if self.times is None else self.times * self.wire_bytes


@dataclass(frozen=True)
class RepeatedSum:
    """An all_reduce whose operand is equal on some of its devices already.

    Attributes:
        axes: The mesh axes over which it sums.
        equal: Those along which its operand is equal.
        factor: How many devices these are, by which the sum multiplies the operand.
        averaged: Whether it is a mean: its own line only divides it by the number of its devices.
        source: "file:line" of the innermost Python frame outside JAX.
    """

    axes: tuple[str, ...]
    equal: tuple[str, ...]
    factor: int
    averaged: bool
    source: str | None


@dataclass(frozen=True)
class Memory:
    """The bytes that one device holds while the compiled program runs."""

    arguments_bytes: int
    outputs_bytes: int
    aliases_bytes: int
    temp_bytes: int
    constants_bytes: int

    @property
    def total_bytes(self) -> int:
        """All bytes held at once; an output that reuses an argument's memory counts once."""
        held = self.arguments_bytes + self.outputs_bytes + self.temp_bytes + self.constants_bytes
        return held - self.aliases_bytes


@dataclass(frozen=True)
class Report:
    """What one device of a program sends, computes and stores in one run.

    Attributes:
        collectives: The collectives in program order, without those that move nothing.
        flops: The multiplications and additions in matrix products and convolutions, with every
            branch counted; None where a loop's length is unknown.
        memory: What the device holds; None where the program was not compiled.
        notes: What else a reader should know: what XLA changed, and what was not counted.
    """

    collectives: tuple[Collective, ...]
    flops: int | None = None
    memory: Memory | None = None
    notes: tuple[str, ...] = ()

    def wire_bytes_by_axis(self) -> dict[tuple[str, ...], int | float]:
        """Sums wire bytes over all executions, for each group of axes.

        A collective whose number of executions is unknown makes its sum infinite.
        """
        totals: dict[tuple[str, ...], int | float] = {}
        for collective in self.collectives:
            total = collective.total_wire_bytes
            totals[collective.axes] = totals.get(collective.axes, 0) + (
                math.inf if total is None else total
            )
        return totals

    def to_dict(self) -> Mapping[str, object]:
        """Returns the report as values that JSON can hold."""
        memory = self.memory and {**asdict(self.memory), "total_bytes": self.memory.total_bytes}
        return {
            "collectives": [asdict(collective) for collective in self.collectives],
            "wire_bytes_by_axis": [
                {"axes": list(axes), "wire_bytes": None if total == math.inf else total}
                for axes, total in self.wire_bytes_by_axis().items()
            ],
            "flops": self.flops,
            "memory": memory,
            "notes": list(self.notes),
        }


def short_source(source: str | None) -> str:
    """Returns the path of a source relative to the current folder, or else its last two parts."""
    if source is None:
        return "?"
    path = Path(source)
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return str(Path(*path.parts[-2:]))
