"""When the pieces of one step run on a device: each lane does one thing at a time.

A lane is what can work beside the others: the device's matrix units, its network card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COMPUTE = "compute"
"""The lane of a device's arithmetic, which is what should never wait."""


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of a step.

    Attributes:
        kind: what it is; pieces of one kind have one colour.
        label: what stands in its box, for example "F3".
        lane: what it occupies: `COMPUTE`, or "network", "disk" and the like.
        seconds: how long it takes.
        after: the pieces that must have ended before it begins.
    """

    kind: str
    label: str
    lane: str
    seconds: float
    after: tuple[Task, ...] = ()


@dataclass(frozen=True)
class Span:
    """A task, and the seconds at which it starts and ends."""

    task: Task
    start: float
    end: float


def run(tasks: Sequence[Task]) -> list[Span]:
    """Starts each task as soon as its lane is free and all that it waits for has ended.

    A lane does its tasks in the order in which they are given, as a queue of kernels does.

    Raises:
        ValueError: a task waits for one that is not given before it.
    """
    free: dict[str, float] = {}
    ended: dict[Task, float] = {}
    spans = []
    for task in tasks:
        for other in task.after:
            if other not in ended:
                raise ValueError(
                    f"run: {task.label!r} waits for {other.label!r}, which is not given before it; "
                    "give the tasks in an order in which they can run"
                )
        start = max([free.get(task.lane, 0.0), *(ended[other] for other in task.after)])
        free[task.lane] = ended[task] = start + task.seconds
        spans.append(Span(task, start, ended[task]))
    return spans


def step_seconds(spans: Sequence[Span]) -> float:
    """When the last piece ends."""
    return max(span.end for span in spans)


def exposed_seconds(spans: Sequence[Span]) -> float:
    """How long arithmetic waits until the last piece ends: what is not hidden behind it."""
    computing = sum(span.task.seconds for span in spans if span.task.lane == COMPUTE)
    return step_seconds(spans) - computing
