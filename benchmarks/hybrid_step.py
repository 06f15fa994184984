"""One training step over three axes at once, against one device, and PyTorch's FSDP2 with DTensor.

All take turns in one run, with the same model, batch, precision and optimizer. Over fsdp both sides
shard parameters, gradients and optimizer states, and gather each layer where it is used. Our step
also computes the norm of all gradients, which PyTorch's and the one on one device do not.
"""

from benchmarks import Row
from benchmarks.sides.our_step import ours
from benchmarks.sides.race import race
from benchmarks.train_step import ONE, PYTORCH, STEP, TORCH, against, compared, one_device

MICROBATCHES = 4
SIDES = {
    "dp=2,fsdp=2,tp=2": ("1.2", ours(mesh="dp=2,fsdp=2,tp=2")),
    "pp=2,fsdp=2,tp=2": ("1.3", ours(mesh="pp=2,fsdp=2,tp=2", microbatches=MICROBATCHES)),
}
MESH = "fsdp=4,tp=2"
RIVALS = {
    f"{PYTORCH} `fully_shard` and `parallelize_module`, gloo, 8 processes": (
        "0.6; CPU 0.45",
        [*TORCH, MESH],
    )
}


def rows() -> list[Row]:
    what = f"{STEP}, {{}} on 8 simulated devices"
    times = race({name: side for name, (_, side) in SIDES.items()} | {ONE: one_device()})
    found = [
        Row(f"{what.format(name)}, against {ONE}", target, compared(times[name], times[ONE]))
        for name, (target, _) in SIDES.items()
    ]
    return found + against(what.format(MESH), ours(mesh=MESH), RIVALS)


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
