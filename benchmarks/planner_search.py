"""How long a search for the fastest plan takes, and how much memory, against devices."""

import subprocess
import sys

from benchmarks import Row

DEVICES = (8, 64, 512, 4096, 16_384, 65_536)
LARGE = "llama3-405b"
# A fresh process on one core: its peak is that of one search, with all that is imported.
CODE = """
import os, resource, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner import Job, explore

job = Job(find_model(sys.argv[1]), find_cluster("h100"), int(sys.argv[2]), 2048, 8192)
start = time.perf_counter()
tried = explore(job, {}).tried
taken = time.perf_counter() - start
print(taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, tried)
"""


def search(model: str, devices: int) -> tuple[float, float, int]:
    """Seconds, MiB and layouts of one search."""
    command = [sys.executable, "-c", CODE, model, str(devices)]
    ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, mib, tried = ended.stdout.split()
    return float(seconds), float(mib), int(tried)


def rows() -> list[Row]:
    seconds, mib, tried = search(LARGE, 16_384)
    made = [Row(
        f"`jaxpar plan`, {LARGE} on 16,384 H100: {tried:,} layouts, one core",
        "3 s, 1 GiB",
        f"{seconds:.2f} s, {mib:.0f} MiB",
    )]  # fmt: skip
    for devices in DEVICES:
        seconds, mib, tried = search("llama3-8b", devices)
        what = f"`jaxpar plan`, llama3-8b on {devices:,} H100: {tried:,} layouts"
        made.append(Row(what, "-", f"{seconds:.2f} s, {mib:.0f} MiB"))
    return made


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
