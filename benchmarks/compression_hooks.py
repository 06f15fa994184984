"""Gradients that are sent in fewer bytes: our step, against PyTorch's communication hooks.

Both sides have 8 devices, the same model, first parameters, batch and optimizer; ours are simulated
in one process, and PyTorch's are processes with gloo. PowerSGD has rank 4 and error feedback on
both sides. PyTorch has no all-reduce in 8 or 4 bits with feedback, so ours run against its 16 bits;
its hook for bfloat16 refuses gloo. The bytes of both are counted as on a ring, without the loss.
`losses_for_bytes` has the losses.
"""

import subprocess
import sys

from benchmarks import Row
from benchmarks.sides.our_step import BATCH, DEVICES, SETTINGS, ours
from benchmarks.sides.race import race
from benchmarks.train_step import NO_TORCH, PYTORCH, SIZE, can_run, compared
from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.decoder_traffic import bytes_over_axes
from jaxpar.train.recipe import make_recipe
from jaxpar.train.sent import predict

MESH = f"dp={DEVICES}"
# Our scheme, the hook, and PyTorch's name for it.
PAIRS = {
    "powersgd=4": ("powersgd=4", "`powerSGD_hook`"),
    "int8": ("fp16", "`fp16_compress_hook`"),
    "int4": ("fp16", "`fp16_compress_hook`"),
}
LOSS_BYTES = 4


def their_side(hook: str) -> list[str]:
    return ["-m", "benchmarks.sides.torch_hooks", hook]


def our_bytes(compress: str) -> float:
    """What a device sends of gradients in a step; the suite holds this against the program."""
    recipe = make_recipe(MESH, batch=BATCH, compress=compress)
    sent = bytes_over_axes(predict(SETTINGS, recipe), recipe.layout)
    return sum(sent.values()) - wire_bytes("all_reduce", LOSS_BYTES, DEVICES)


def their_bytes(hook: str) -> float:
    """What a process sends of gradients in a step, counted while it runs."""
    ended = subprocess.run(
        [sys.executable, *their_side(hook), "bytes"],
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("bytes"))
    return float(line.split()[1])


def rows() -> list[Row]:
    found = []
    for compress, (hook, named) in PAIRS.items():
        sides = f"--compress {compress}, against {PYTORCH} {named}, gloo, {DEVICES} processes"
        step, sent = f"training step ({SIZE}), {sides}", f"bytes of a step, {sides}"
        measured = [NO_TORCH, NO_TORCH]
        if can_run(PYTORCH):
            times = race({"ours": ours(mesh=MESH, compress=compress), named: their_side(hook)}, 1)
            mine, theirs = our_bytes(compress), their_bytes(hook)
            measured = [
                compared(times["ours"], times[named]),
                f"{mine / theirs:.2f} ({mine:,.0f}, {theirs:,.0f})",
            ]
        found += [Row(step, "0.8", measured[0]), Row(sent, "1.0", measured[1])]
    return found


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
