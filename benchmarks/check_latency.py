"""How long a verdict takes: from a cold `jaxpar check`, and on a file saved again in watch mode.

Every third exercise is judged, with a right answer.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import Row
from benchmarks.sides.answers import right
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.course.check import check, open_judge

SAMPLE = EXERCISES[::3]
IDLE_SECONDS = 6  # the spare processes import JAX while the learner edits


def cold_seconds(row: Exercise, path: Path) -> float:
    command = [sys.executable, "-m", "jaxpar.cli", "check", row.id, "--file", path, "--json"]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - start
    assert json.loads(done.stdout)["status"] == "pass"
    return seconds


def warm_seconds(rows: dict[Exercise, Path]) -> list[float]:
    seconds = []
    with open_judge() as judge:
        for row, path in rows.items():
            check(row, path, judge, None)  # the first judgement of a sitting
            judge.warm()
            time.sleep(IDLE_SECONDS)
            start = time.perf_counter()
            verdict = check(row, path, judge, None)
            seconds.append(time.perf_counter() - start)
            assert verdict.status == "pass", verdict
    return seconds


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        paths = {row: Path(folder) / f"{row.id}.py" for row in SAMPLE}
        for row, path in paths.items():
            path.write_text(right(row)[0])
        cold = [cold_seconds(row, path) for row, path in paths.items()]
        warm = warm_seconds(paths)
    return [
        _row("`jaxpar check`, cold process to verdict", "2 s", cold),
        _row("re-check in watch mode, save to verdict", "1 s", warm),
    ]


def _row(what: str, target: str, seconds: list[float]) -> Row:
    median, worst = statistics.median(seconds), max(seconds)
    over = f"median of {len(seconds)} exercises"
    return Row(f"{what}, {over}", target, f"{median:.1f} s (slowest {worst:.1f} s)")


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
