"""A training step over two processes of four simulated devices each, against one of eight."""

import json
import statistics
import subprocess
import sys

from benchmarks import Row

STEPS, WARM_UP, TURNS = 12, 3, 3
TRAIN = ["train", "--mesh", "dp=8", "--steps", str(STEPS), "--json"]
LAUNCH = ["launch", "--processes", "2", "--devices", "4", "--", *TRAIN]


def step_seconds(arguments: list[str]) -> float:
    """The median of a run's steps."""
    command = [sys.executable, "-m", "jaxpar.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return statistics.median(json.loads(done.stdout)["step_seconds"][WARM_UP:])


def rows() -> list[Row]:
    turns = [(step_seconds(LAUNCH), step_seconds(TRAIN)) for _ in range(TURNS)]
    ratio = statistics.median(two / one for two, one in turns)
    two, one = (statistics.median(seconds) for seconds in zip(*turns, strict=True))
    what = "training step, 2 processes of 4 simulated devices against 1 of 8"
    return [Row(what, "reported", f"{ratio:.2f} ({two:.2f} s, {one:.2f} s)")]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
