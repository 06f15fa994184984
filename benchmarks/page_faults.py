"""Pages of memory that a training step takes anew from the system, and what they cost.

A device on CPU takes the memory for its intermediate results at the start of a step, and frees it
at the end. glibc may give so large a piece back to the system, and then every page of it faults in
the next step. Whether it does depends on how the threads of a process came to share their heaps, so
it differs from launch to launch; what a fault costs differs between hosts whose processors have the
same name. On one virtual machine it was 2 to 3 microseconds of processor time for a page of 4 KiB,
and 12 where its host had to find the memory first. Each side races itself with freed memory kept.
"""

from collections.abc import Sequence

from benchmarks import Row
from benchmarks.sides.our_step import DEVICES, ours
from benchmarks.sides.race import Turn, race
from benchmarks.train_step import NO_TORCH, ONE, PYTORCH, STEP, TORCH, can_run, compared, one_device

KEEP = (
    "glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=1073741824:"
    "glibc.malloc.trim_threshold=4294967296"
)
LAUNCH = (
    f"import os, sys; os.environ['GLIBC_TUNABLES'] = {KEEP!r}; "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
SIDES = {
    f"data parallel on {DEVICES} simulated devices": ours(mesh=f"dp={DEVICES}"),
    ONE: one_device(),
    f"eager {PYTORCH} in one process": TORCH,
}


def faults(turns: Sequence[Turn]) -> str:
    counts = [turn.page_faults for turn in turns]
    return f"{min(counts):,.0f} to {max(counts):,.0f}"


def of_side(name: str, side: Sequence[str]) -> list[Row]:
    what = f"{STEP}, {name}, with freed memory kept, against glibc's defaults"
    counted = f"page faults in this step, {name}, with freed memory kept, and by glibc's defaults"
    if not can_run(name):
        return [Row(each, "reported", NO_TORCH) for each in (what, counted)]
    turns = race({"kept": ["-c", LAUNCH, *side], "given back": side})
    kept, given_back = turns["kept"], turns["given back"]
    return [
        Row(what, "reported", compared(kept, given_back)),
        Row(counted, "reported", f"{faults(kept)}; {faults(given_back)}"),
    ]


def rows() -> list[Row]:
    return [row for name, side in SIDES.items() for row in of_side(name, side)]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
