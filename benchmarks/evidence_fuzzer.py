"""Mutated programs through the real reader: each ends as a verdict, none stops the grader.

Some change nothing that counts, the name of a value or a source line, and pass.

`python -m benchmarks.evidence_fuzzer [COUNT [SEED]]`: bounded, and repeated by its seed.
"""

import dataclasses
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import Row
from benchmarks.sides.answers import right
from jaxpar.classroom.sandbox.levels import best_sandbox
from jaxpar.course.catalog import exercise
from jaxpar.grading.evidence import Evidence
from jaxpar.grading.judge import judge
from jaxpar.grading.processes import Limits, Pool
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict

COUNT, SEED = 100, 8
EXERCISES = ("mean_over_devices", "scatter", "reduce_max_location")
LIMITS = Limits(wall_seconds=60, memory_bytes=4 << 30, cpu_seconds=10)
MOST_SECONDS = 3 * LIMITS.wall_seconds  # a first run, a second, and a program that is known
ENDS = {"pass", "fail", "error", "timeout", "memory", "killed", "protocol"}

Bytes = bytearray


def _flip(data: Bytes, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _number(data: Bytes, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))


def _cut(data: Bytes, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice((1, 4, 16, len(data)))]


def _repeat(data: Bytes, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start:start] = data[start : start + rng.choice((1, 8, 64))] * rng.choice((1, 4, 1000))


def _move(data: Bytes, rng: random.Random) -> None:
    start, end = rng.randrange(len(data)), rng.randrange(len(data))
    data[end:end] = data[start : start + 32]


def _replace(data: Bytes, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    data[start : start + 8] = rng.randbytes(8)


MUTATIONS: tuple[Callable[[Bytes, random.Random], None], ...] = (
    _flip, _flip, _number, _number, _cut, _repeat, _move, _replace
)  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The same bytes with a few changes; never none."""
    changed = Bytes(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if changed:
            rng.choice(MUTATIONS)(changed, rng)
    return bytes(changed)


class Kept:
    """Evidence of an honest answer, given out as it is or with one program changed."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self.honest: Evidence | None = None
        self.rng: random.Random | None = None

    def get(self, job: dict[str, Any]) -> Evidence | None:
        """The evidence that the judge takes for a worker's."""
        del job
        if self.honest is None or self.rng is None:
            return None
        programs = dict(self.honest.programs)
        which = self.rng.choice(sorted(programs))
        outputs, blob = programs[which]
        programs[which] = outputs, mutated(blob, self.rng)
        return dataclasses.replace(self.honest, programs=programs)

    def put(self, job: dict[str, Any], evidence: Evidence) -> None:
        """Keeps what the worker sent."""
        del job
        self.honest = evidence


def fuzz(name: str, count: int, seed: int, tell: Callable[[Verdict], None]) -> None:
    """Judges mutated programs of one exercise."""
    row = exercise(name)
    submission = Submission(Path(f"{name}.py"), right(row)[0].encode())
    kept = Kept()
    with Pool(LIMITS, best_sandbox(unsafe=True).start, kept) as pool:
        assert judge(row.where, submission, pool=pool, seed=1, hidden_seed=1).passed
        for number in range(count):
            kept.rng = random.Random(f"{name} {seed} {number}")
            tell(judge(row.where, submission, pool=pool, seed=1, hidden_seed=1))


def rows(count: int = COUNT, seed: int = SEED) -> list[Row]:
    ends: Counter[str] = Counter()
    seconds: list[float] = []

    def tell(verdict: Verdict) -> None:
        ends[verdict.status] += 1
        seconds.append(verdict.seconds)

    start = time.perf_counter()
    for name in EXERCISES:
        fuzz(name, -(-count // len(EXERCISES)), seed, tell)
    took = time.perf_counter() - start
    assert ends.keys() <= ENDS, ends
    assert max(seconds) < MOST_SECONDS
    found = ", ".join(f"{number} {status}" for status, number in ends.most_common())
    return [
        Row(
            f"mutated programs through the reader, seed {seed}",
            "a verdict each, no hang",
            f"{found}; median {statistics.median(seconds):.1f} s, most {max(seconds):.1f} s "
            f"({took:.0f} s in all)",
        )
    ]


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print(row.what, row.target, row.measured, sep=" | ")
