"""Numbers in 8 and 4 bits, and a step of Adam in 8 bits: ours, against bitsandbytes on CPUs.

Both round the same normal numbers in float32, in blocks of 256 with the signed dynamic codebook, or
of 64 in NF4, and read them again. A step of AdamW updates the parameters, too; both keep a code of
8 bits of each moment and a float32 for each block of 256, ours of 128, an eighth of a row.
"""

import importlib.util
import subprocess
import sys

from benchmarks import Row
from benchmarks.sides.eight_bits import NUMBERS, PARAMETERS
from benchmarks.sides.race import race
from benchmarks.train_step import compared

RIVAL = "bitsandbytes"
MISSING = "not measured: no bitsandbytes here"
MILLIONS = f"{NUMBERS / 1e6:.1f} M numbers"
TIMED = {
    "quantize": ("0.5", f"quantize {MILLIONS} to 8 bits"),
    "dequantize": ("0.5", f"dequantize {MILLIONS} of 8 bits"),
    "nf4": ("0.1", f"quantize {MILLIONS} to NF4"),
    "nf4_back": ("reported", f"dequantize {MILLIONS} of NF4"),
    "adam": (
        "0.3",
        f"a step of AdamW in 8 bits, {PARAMETERS[0] * PARAMETERS[1] ** 2 / 1e6:.1f} M parameters",
    ),
}
ERRORS = {"quantize": "8 bits", "nf4": "NF4"}


def side(whose: str, what: str) -> list[str]:
    """The command of one side."""
    return ["-m", "benchmarks.sides.eight_bits", whose, what]


def error_of(whose: str, what: str) -> float:
    """The relative error of a round trip."""
    command = [sys.executable, *side(whose, what), "error"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("error"))
    return float(line.split()[1])


def rows() -> list[Row]:
    here = importlib.util.find_spec(RIVAL) is not None
    found = []
    for what, (target, words) in TIMED.items():
        measured = MISSING
        if here:
            times = race({whose: side(whose, what) for whose in ("ours", "theirs")}, same=1)
            measured = compared(times["ours"], times["theirs"])
        found.append(Row(f"{words}, against {RIVAL}", target, measured))
    for what, words in ERRORS.items():
        measured = MISSING
        if here:
            ours, theirs = (error_of(whose, what) for whose in ("ours", "theirs"))
            measured = f"{ours / theirs:.4f} ({ours:.5f}, {theirs:.5f})"
        found.append(
            Row(f"error of a round trip in {words}, over that of {RIVAL}", "1.01", measured)
        )
    return found


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
