"""Waiting for workers that are late now and then, over lines of different speeds: by simulation.

How often workers are late is what Chen et al. 2016 measured of 100 of them: in 30% of the steps all
gradients had come after 2 seconds. If workers are late independently of each other, each is late in
1.2% of its steps. (Two late ones at most would then leave 88% of the steps in time; 80% were.)

How fast lines are follows from what INTELLECT-1 measured between nodes (Jaghouar et al. 2024): 83%
of the time computing across three continents, and 96% inside one country, so that the same averages
took five times as long. How late a worker is, is assumed: 2 s or more, with a heavy tail.

Sources: Chen, Pan, Monga, Bengio and Jozefowicz 2016, Revisiting Distributed Synchronous SGD,
section 3.1; Jaghouar et al. 2024, INTELLECT-1 Technical Report.
"""

import math
from dataclasses import dataclass

import numpy as np

from jaxpar.checks import check_positive
from jaxpar.cost.communication import Link, wire_bytes

LATE = 1 - 0.3 ** (1 / 100)
SPREAD = (1 / 0.83 - 1) / (1 / 0.96 - 1)
LATE_SECONDS, TAIL = 2.0, 1.5  # of a late step, at least; and the exponent of its Pareto tail


@dataclass(frozen=True)
class Fleet:
    """Workers that train together, each with a line of its own.

    A step takes a worker 1 second, or longer when it is late.

    Attributes:
        workers: how many there are.
        line: the line of the worker in the middle; the latency is that of all.
        spread: how many times as fast as the slowest line the fastest one is. Between the two, the
            logarithms of the speeds are spread evenly.
        late: the part of a worker's steps in which it is late.
    """

    workers: int
    line: Link
    spread: float = SPREAD
    late: float = LATE


def step_seconds(
    fleet: Fleet,
    operand_bytes: float,
    *,
    local_steps: int = 1,
    waits_for: float = 1.0,
    rounds: int = 100,
    seed: int = 0,
) -> float:
    """The mean time of a training step of workers that wait for each other.

    They average `operand_bytes` after every `local_steps` steps, each sending as in an all-reduce.
    A worker is ready when it has computed, and its bytes have crossed its line. A round is over
    when the part `waits_for` of the workers is ready, and 2 log2 n messages have passed.

    Raises:
        ValueError: a number is not above 0, or `waits_for` is above 1.
    """
    counts = {"workers": fleet.workers, "local_steps": local_steps, "rounds": rounds}
    check_positive("step_seconds", counts | {"waits_for": waits_for, "spread": fleet.spread})
    if waits_for > 1:
        raise ValueError(
            f"step_seconds: waits_for is {waits_for}; it is a part of the workers; use 1 for all"
        )
    rng = np.random.default_rng(seed)
    shape = (rounds, local_steps, fleet.workers)
    late = LATE_SECONDS * (1 - rng.random(shape)) ** (-1 / TAIL)
    computing = np.where(rng.random(shape) < fleet.late, late, 1.0).sum(axis=1)
    speeds = fleet.line.bytes_per_second * fleet.spread ** (rng.random(fleet.workers) - 0.5)
    ready = np.sort(computing + wire_bytes("all_reduce", operand_bytes, fleet.workers) / speeds)
    last = math.ceil(waits_for * fleet.workers) - 1
    messages = 2 * math.ceil(math.log2(fleet.workers)) * fleet.line.latency_seconds
    return float(ready[:, last].mean() + messages) / local_steps
