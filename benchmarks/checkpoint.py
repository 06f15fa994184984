"""Saving and loading a training state: ours, with its checksums, against PyTorch's.

Both save the parameters of a decoder and two moments of each over eight devices or processes, into
the same file system, and take turns in one run. A load comes after a save, so that it reads from
the system's cache; ours compares every file with its checksum. An async save blocks for as long as
the call takes after which the next step may begin.
"""

import subprocess
import sys
from collections.abc import Sequence

from benchmarks import Row
from benchmarks.sides.saves import DEVICES, SETTINGS, Taken
from benchmarks.train_step import NO_TORCH, PYTORCH, can_run, ratio

TURNS = 5
EVERY = 10  # steps from one save to the next
OURS = "-m benchmarks.sides.our_checkpoint"
THEIRS = "-m benchmarks.sides.torch_checkpoint"
RIVAL = f"{PYTORCH} torch.distributed.checkpoint, gloo, {DEVICES} processes"
STATE = f"{SETTINGS.parameters / 1e6:.0f} M parameters with AdamW's state"
TARGETS = {
    "save": ("0.7", f"save {STATE}"),
    "blocks": ("0.6", f"what an async save of {STATE} blocks"),
    "load": ("0.5", f"load {STATE}"),
}


def rows() -> list[Row]:
    return [*_against_torch(), _added_to_a_step(), _read_again()]


def _against_torch() -> list[Row]:
    if not can_run(RIVAL):
        return [
            Row(f"{what}, against {RIVAL}", target, NO_TORCH) for target, what in TARGETS.values()
        ]
    ours, theirs = zip(*_turns(), strict=True)
    stored = [f"{side[0].stored_bytes / 1e6:.0f} MB" for side in (ours, theirs)]
    found = [
        Row(f"{what}, against {RIVAL}", target, ratio(_column(ours, name), _column(theirs, name)))
        for name, (target, what) in TARGETS.items()
    ]
    return [*found, Row(f"stored, and by {RIVAL}", "reported", ", ".join(stored))]


def _turns() -> list[list[Taken]]:
    """What both sides took, turn by turn, after one that warms up."""
    sides = [
        subprocess.Popen(
            [sys.executable, *command.split()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for command in (OURS, THEIRS)
    ]
    try:
        taken = [[_turn(side) for side in sides] for _ in range(1 + TURNS)]
    finally:
        for side in sides:
            side.communicate()
    return taken[1:]


def _turn(side: subprocess.Popen[str]) -> Taken:
    """Asks a side for one turn."""
    assert side.stdin and side.stdout
    print(file=side.stdin, flush=True)
    return Taken(*map(float, side.stdout.readline().split()))


def _column(turns: Sequence[Taken], name: str) -> list[float]:
    return [getattr(turn, name) for turn in turns]


def _added_to_a_step() -> Row:
    turns = [(_step_seconds(EVERY), _step_seconds(0)) for _ in range(TURNS)]
    saving, plain = zip(*turns, strict=True)
    what = (
        f"training step (`Settings()`, fsdp=8) with an async save every {EVERY} steps, against none"
    )
    return Row(what, "1.05", ratio(saving, plain))


def _step_seconds(every: int) -> float:
    """The mean of a run's steps."""
    command = [sys.executable, "-m", "benchmarks.sides.saving_run", str(every)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _read_again() -> Row:
    command = [sys.executable, "-m", "benchmarks.sides.restored_bytes"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    read = [line.split("\t") for line in printed.splitlines()]
    return Row(
        "bytes that one process reads to restore a run of fsdp=8, over those stored",
        "1, the bytes read once",
        ", ".join(f"{times} onto {mesh}" for mesh, times in read),
    )


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
