"""One training step with every stage of ZeRO: against plain data parallelism, and PyTorch's FSDP.

All take turns in one run, with the same model, batch, precision and optimizer.
"""

from benchmarks import Row
from benchmarks.sides.our_step import DEVICES, ours
from benchmarks.sides.race import race
from benchmarks.train_step import PYTORCH, STEP, TORCH, against, compared

PLAIN = "plain data parallelism"
MESH = f"dp={DEVICES}"
TARGETS = {1: "1.1", 2: "1.1", 3: "1.3"}
FSDP = {
    f"{PYTORCH} FSDP2 (`fully_shard`), gloo, {DEVICES} processes": (
        "1.0",
        [*TORCH, f"fsdp={DEVICES}"],
    )
}


def rows() -> list[Row]:
    what = f"{STEP}, ZeRO stage {{}} on {DEVICES} simulated devices"
    sides = {stage: ours(mesh=MESH, zero=stage) for stage in TARGETS}
    times = race({PLAIN: ours(mesh=MESH)} | {str(stage): side for stage, side in sides.items()})
    found = [
        Row(
            f"{what.format(stage)}, against {PLAIN}",
            target,
            compared(times[str(stage)], times[PLAIN]),
        )
        for stage, target in TARGETS.items()
    ]
    return found + against(what.format(3), sides[3], FSDP)


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
