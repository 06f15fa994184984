"""One training step by pipeline schedules: against one device, GPipe by scan, and PyTorch.

All take turns in one run, with the same model, batch, precision, optimizer and recomputation.
"""

from benchmarks import Row
from benchmarks.sides.gpipe_step import EXAMPLES, MICROBATCHES, SCAN, STAGES
from benchmarks.sides.our_step import SETTINGS, ours
from benchmarks.sides.race import race
from benchmarks.train_step import ONE, PYTORCH, against, compared, one_device

BATCH = MICROBATCHES * EXAMPLES
MESH = f"pp={STAGES}"
TARGETS = {"1f1b": "1.25", "gpipe": "1.35", "zb-h1": "reported"}
RIVALS = {
    f"{PYTORCH} Schedule1F1B, gloo, {STAGES} processes": (
        "0.8",
        ["-m", "benchmarks.sides.torch_pipeline", *map(str, (STAGES, BATCH, MICROBATCHES))],
    )
}
STEP = (
    f"training step ({SETTINGS.parameters / 1e6:.1f} M parameters, {MICROBATCHES} microbatches of "
    f"{EXAMPLES * SETTINGS.sequence} tokens, float32, AdamW), {{}} on {STAGES} simulated devices"
)


def by_table(name: str) -> list[str]:
    return ours(BATCH, mesh=MESH, schedule=name, microbatches=MICROBATCHES)


def rows() -> list[Row]:
    times = race({name: by_table(name) for name in TARGETS} | {ONE: one_device(BATCH)})
    found = [
        Row(f"{STEP.format(name)}, against {ONE}", target, compared(times[name], times[ONE]))
        for name, target in TARGETS.items()
    ]
    side = ["-m", "benchmarks.sides.gpipe_step"]
    times = race({name: [*side, name] for name in (SCAN, "1f1b")})
    what = f"gradient of {SETTINGS.layers} layers, 1f1b by its table, against GPipe by scan"
    found.append(Row(what, "1.0", compared(times["1f1b"], times[SCAN])))
    return found + against(STEP.format("1f1b"), by_table("1f1b"), RIVALS)


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
