"""Times several programs in turn: each is a process that takes a few steps when it is asked."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

STEPS, TURNS = 5, 3
LAUNCHES = 2  # where a process gets its memory changes the time of a step by some 5%


def serve(step: Callable[[], object]) -> None:
    """Warms up, says so, and answers every line of stdin with the seconds of a step."""
    for _ in range(STEPS):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(statistics.median(_seconds(step) for _ in range(STEPS)), flush=True)


def race(sides: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    """The seconds of a step of every side (arguments of Python), turn by turn."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(LAUNCHES):
        _launch(sides, seconds)
    return seconds


def _launch(sides: Mapping[str, Sequence[str]], seconds: dict[str, list[float]]) -> None:
    """Starts every side, and adds the seconds of each turn."""
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
        for name, process in processes.items():
            if _line(process) != "ready\n":
                raise RuntimeError(f"{name} did not start; run it: python {' '.join(sides[name])}")
        for _ in range(TURNS):
            for name, process in processes.items():
                print(file=process.stdin, flush=True)
                seconds[name].append(float(_line(process)))
    finally:
        for process in processes.values():
            process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


def _seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
