"""The command of a program: its words, and what it does otherwise than the plan."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxpar.cost.planner.plan import Plan


@dataclass(frozen=True)
class Command:
    """A command, as a shell takes it.

    Attributes:
        words: the program and its options.
        notes: what is left to add, and where the program differs from what the plan counts.
    """

    words: Sequence[str]
    notes: Sequence[str]

    @property
    def line(self) -> str:
        """The command in one line."""
        return shlex.join(self.words)


def refuse(program: str, reasons: Mapping[str, Any]) -> None:
    """Raises a ValueError that gives the first reason whose condition holds."""
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(
                f"plan: --export {program}: {reason}; change that, or export to another program"
            )


def torchrun(plan: Plan) -> list[str]:
    """The words that start a process for each device, on every node."""
    devices, most = plan.layout.devices, plan.job.cluster.devices_per_node
    here = max(n for n in range(1, min(devices, most) + 1) if devices % n == 0)
    return ["torchrun", f"--nproc-per-node={here}", f"--nnodes={devices // here}"]


def start_note(plan: Plan) -> list[str]:
    """What `torchrun` needs beside its words, if there are several nodes."""
    if plan.layout.devices <= plan.job.cluster.devices_per_node:
        return []
    return ["Start it on every node, with --node-rank and --master-addr before the program."]


def dashed(options: Mapping[str, Any]) -> list[str]:
    """Options as --name value; True stands alone, and what is False or None is left out."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        words += [] if value is True else [str(value)]
    return words


def degree(size: int) -> int | None:
    """The size of an axis, if it has several devices."""
    return size if size > 1 else None
