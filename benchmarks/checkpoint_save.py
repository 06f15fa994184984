"""Checkpoints of the default decoder with AdamW, sharded over 8 devices: against PyTorch's.

Ours are those of `jaxpar train --checkpoint`: orbax writes them, and a checksum of every file is
taken when it is saved and compared when it is loaded. The rival is `torch.distributed.checkpoint`,
on the same states as FSDP2 shards them over 8 processes. Both sides take turns, and write into the
same file system; how long a save lasts depends on it.
"""

import statistics
import subprocess
import sys

from benchmarks import Row
from benchmarks.sides.our_checkpoint import EVERY
from benchmarks.sides.our_step import DEVICES, SETTINGS
from benchmarks.train_step import NO_TORCH, can_run

OURS, TORCH = "our_checkpoint", "torch_checkpoint"
RIVAL = f"PyTorch `torch.distributed.checkpoint`, gloo, {DEVICES} processes"
TURNS = 5
WHAT = {
    "save": "0.7",
    "load": "0.5",
    "what a save in the background blocks": "0.6",
    "bytes": "reported",
}


def rows() -> list[Row]:
    sides = [OURS, TORCH] if can_run(RIVAL) else [OURS]
    found = dict(zip(sides, _medians(sides), strict=True))
    what = f"checkpoint ({SETTINGS.parameters / 1e6:.1f} M parameters, AdamW, fp32), {{}}"
    alone, beside = found[OURS][4:]
    measured = []
    for place, (name, target) in enumerate(WHAT.items()):
        ours, units = found[OURS][place], ("MB", 1e6) if name == "bytes" else ("s", 1)
        if TORCH in found:
            rival = found[TORCH][place]
            shown = ", ".join(f"{number / units[1]:.2f} {units[0]}" for number in (ours, rival))
            text = f"{ours / rival:.2f} ({shown})"
        else:
            text = NO_TORCH
        measured.append(Row(f"{what.format(name)}, against {RIVAL}", target, text))
    steps = f"{EVERY} training steps with a save in the background, against {EVERY} without"
    return [*measured, Row(steps, "1.05", f"{beside / alone:.2f} ({beside:.2f} s, {alone:.2f} s)")]


def _medians(sides: list[str]) -> list[list[float]]:
    """The median of every number that a side answers, over the turns that they take."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.sides.{side}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for side in sides
    ]
    answers: list[list[list[float]]] = [[] for _ in sides]
    try:
        for turn in range(TURNS + 1):
            for process, found in zip(processes, answers, strict=True):
                assert process.stdin and process.stdout
                print(file=process.stdin, flush=True)
                numbers = [float(word) for word in process.stdout.readline().split()]
                if turn:  # the first one warms up
                    found.append(numbers)
    finally:
        for process in processes:
            process.communicate()
    return [[statistics.median(column) for column in zip(*rows, strict=True)] for rows in answers]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
