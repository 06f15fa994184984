"""One training step on a long sequence, whose positions are split over devices.

All take turns in one run, with the same model, tokens, precision and optimizer. The ring in PyTorch
is ours, a zig-zag as well; PyTorch's own context parallelism does not run on CPUs. Losses of the
first four steps are compared; in the fifth, roundings have grown to 3e-5 of the loss.
"""

from benchmarks import Row
from benchmarks.sides.our_step import SETTINGS, ours
from benchmarks.sides.race import race
from benchmarks.train_step import PYTORCH, against, compared, one_device

SEQUENCE, DEVICES, PROCESSES = 2048, 8, 4
STEP = (
    f"training step ({SETTINGS.parameters / 1e6:.1f} M parameters, {SEQUENCE:,} tokens in one "
    "sequence, float32, AdamW)"
)
ZIGZAG = f"cp={DEVICES}, zig-zag"
RIVALS = {
    "`jax.jit` on one device, all scores at once": ("0.4", one_device(1, SEQUENCE, "plain")),
    "`jax.jit` on one device, by tiles": ("1.2", one_device(1, SEQUENCE, "flash")),
    f"a ring of contiguous parts, cp={DEVICES}": (
        "0.6",
        ours(1, SEQUENCE, mesh=f"cp={DEVICES}", context="ring"),
    ),
}
RINGS = {
    f"a zig-zag ring in {PYTORCH}, gloo, {PROCESSES} processes": (
        "0.8",
        ["-m", "benchmarks.sides.torch_ring", str(PROCESSES), str(SEQUENCE)],
    )
}


def zigzag(devices: int) -> list[str]:
    """The command that takes our steps."""
    return ours(1, SEQUENCE, mesh=f"cp={devices}", context="zigzag")


def rows() -> list[Row]:
    times = race({ZIGZAG: zigzag(DEVICES)} | {name: side for name, (_, side) in RIVALS.items()})
    found = [
        Row(f"{STEP}, {ZIGZAG}, against {name}", target, compared(times[ZIGZAG], times[name]))
        for name, (target, _) in RIVALS.items()
    ]
    what = f"{STEP}, cp={PROCESSES}, zig-zag, on simulated devices"
    return found + against(what, zigzag(PROCESSES), RINGS, same=4)


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
