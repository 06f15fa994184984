"""Times several programs in turn: each is a process that takes a few steps when it is asked.

All that race train the same model with the same tokens, so the losses of their first steps are
compared before any time is taken; where gradients lose bits, only those of the very first.
"""

import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

STEPS, TURNS = 5, 3
LAUNCHES = 2  # where a process gets its memory changes the time of a step by some 5%
TOLERANCE = 1e-5  # of the losses, relatively


class Turn(NamedTuple):
    """What a step took in one turn.

    Attributes:
        seconds: by the clock, the median of the steps.
        cpu_seconds: of all cores and all processes of the side, the mean of the steps.
        page_faults: of all processes of the side, the mean of the steps.
    """

    seconds: float
    cpu_seconds: float
    page_faults: float


def serve(step: Callable[[], float], total: Callable[[float], float] = float) -> None:
    """Warms up, tells the losses, and answers every line of stdin with a turn.

    `step` returns the loss. Where several processes take a step together, it returns this process's
    part of the loss, and `total` sums a number over these processes; one of them answers for all.
    """
    print("losses", *[total(step()) for _ in range(STEPS)], flush=True)
    for _ in sys.stdin:
        before = [total(used) for used in _used()]
        seconds = statistics.median(_seconds(step) for _ in range(STEPS))
        after = [total(used) for used in _used()]
        print(seconds, *[(b - a) / STEPS for a, b in zip(before, after, strict=True)], flush=True)


def race(sides: Mapping[str, Sequence[str]], same: int = STEPS) -> dict[str, list[Turn]]:
    """What a step of every side (arguments of Python) took, turn by turn.

    The losses of so many first steps must be the `same`.

    Raises:
        RuntimeError: a side does not start, or the losses of two sides differ.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in sides}
    for _ in range(LAUNCHES):
        _launch(sides, turns, same)
    return turns


def _launch(sides: Mapping[str, Sequence[str]], turns: dict[str, list[Turn]], same: int) -> None:
    """Starts every side, compares their losses, and adds their turns."""
    processes = {
        name: subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, arguments in sides.items()
    }
    try:
        losses = {}
        for name, process in processes.items():
            began, *numbers = _words(process) or [""]
            if began != "losses":
                raise RuntimeError(f"{name} did not start; run it: python {' '.join(sides[name])}")
            losses[name] = list(map(float, numbers))[:same]
        _check_losses(losses)
        for _ in range(TURNS):
            for name, process in processes.items():
                print(file=process.stdin, flush=True)
                turns[name].append(Turn(*map(float, _words(process))))
    finally:
        for process in processes.values():
            process.communicate()


def _check_losses(losses: Mapping[str, Sequence[float]]) -> None:
    (first, expected), *others = losses.items()
    for name, found in others:
        if not all(map(_close, found, expected)):
            raise RuntimeError(
                f"the losses of {first} are {expected}, and those of {name} are {found}; sides "
                "that race do the same work"
            )


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=TOLERANCE)


def _words(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout
    return process.stdout.readline().split()


def _used() -> tuple[float, float]:
    """The CPU seconds and the page faults of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_minflt + used.ru_majflt


def _seconds(step: Callable[[], float]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
