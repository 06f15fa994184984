"""Grading killed at random moments and started again, against a run that nobody disturbed.

`python -m benchmarks.class_resume [KILLS [STUDENTS [EXERCISES]]]`
"""

import random
import sys
import time

from benchmarks import Row
from benchmarks.sides import synthetic_class
from jaxpar.course.catalog import EXERCISES

KILLS, STUDENTS, COUNT, SEED = 20, 6, 10, 8
LEAST_SECONDS = 2.0  # a run must come as far as grading, or it is killed for nothing


def rows(kills: int = KILLS, students: int = STUDENTS, exercises: int = COUNT) -> list[Row]:
    chosen = list(EXERCISES)[:: max(1, len(EXERCISES) // exercises)][:exercises]
    names = [row.id for row in chosen]
    with synthetic_class.folder() as place:
        synthetic_class.make(place / "class", students, chosen)
        start = time.perf_counter()
        assert synthetic_class.begin(place, "undisturbed", names).wait() == 0
        seconds = time.perf_counter() - start
        journal = place / "undisturbed" / "journal" / "records"
        expected = {path.name for path in journal.iterdir()}

        rng, twice = random.Random(SEED), 0
        kept: dict[str, int] = {}
        for _ in range(kills):
            process = synthetic_class.begin(place, "killed", names)
            time.sleep(rng.uniform(LEAST_SECONDS, LEAST_SECONDS + 2 * seconds / kills))
            process.kill()
            process.wait()
            records = list((place / "killed" / "journal" / "records").glob("*.json"))
            found = {path.name: path.stat().st_ino for path in records}
            twice += sum(found.get(name) != number for name, number in kept.items())
            kept = found
        assert synthetic_class.begin(place, "killed", names).wait() == 0
        ours, theirs = (synthetic_class.results(place, out) for out in ("killed", "undisturbed"))
        same = sum(ours.get(name) == result for name, result in theirs.items())
        left = len(expected - kept.keys())
    what = f"grading killed {kills} times and resumed, {students} students, {len(expected)} files"
    measured = (
        f"{same} of {len(theirs)} results identical; {twice} records lost or made twice; "
        f"{left} files left for the last run"
    )
    return [Row(what, f"{students} identical, 0 lost", measured)]


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print(row.what, row.target, row.measured, sep=" | ")
