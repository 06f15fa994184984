"""Causal attention by tiles on one device, and what its intermediate results take.

Both passes, one example, 8 heads of 32 numbers, 2 of them for keys and values, float32. All sides
take turns in one run. Intermediate results are those of the compiled program on each device; a
program of all scores at once is compiled for this, but not run.
"""

from collections.abc import Callable
from functools import partial

import jax
from jax import Array, P

from benchmarks import Row
from benchmarks.sides.attention import HEADS, KV_HEADS, SIZE, WAYS, both_passes
from benchmarks.sides.race import race
from benchmarks.train_step import NO_TORCH, PYTORCH, can_run, compared
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.parallel.context import zigzag_ring_attention

TIMED = {2048: "1.3; CPU 1.1", 4096: "1.3; CPU 1.0"}
MEASURED = (1024, 2048, 4096, 8192, 16384, 32768)
DEVICES = (2, 4, 8)
RIVAL = f"{PYTORCH} `scaled_dot_product_attention`"


def side(way: str, t: int) -> list[str]:
    """The command that takes steps of one way."""
    return ["-m", "benchmarks.sides.attention", way, str(t)]


def timed(t: int, target: str) -> list[Row]:
    """Our tiles against PyTorch's kernel, and against all scores at once."""
    sides = {"flash": side("flash", t), "plain": side("plain", t)}
    if can_run(RIVAL):
        sides[RIVAL] = side("torch", t)
    times = race(sides)
    what = f"flash attention, both passes, {t:,} positions, against"
    met = compared(times["flash"], times[RIVAL]) if RIVAL in times else NO_TORCH
    return [
        Row(f"{what} {RIVAL}", target, met),
        Row(f"{what} all scores at once", "0.25", compared(times["flash"], times["plain"])),
    ]


def temp_megabytes(attention: Callable[..., Array], s: int) -> str:
    """What a device holds beside arguments and results."""
    sizes = [jax.ShapeDtypeStruct((1, heads, s, SIZE), "float32") for heads in (HEADS, KV_HEADS)]
    q, k = sizes
    memory = inspect(partial(both_passes, attention), q, k, k, q).memory
    assert memory
    return f"{memory.temp_bytes / 1e6:,.1f} MB"


def over_devices(n: int) -> Callable[..., Array]:
    """Attention in a zig-zag ring, with all positions as its arguments."""
    own = P(None, None, "cp")
    ring = partial(zigzag_ring_attention, axis="cp")
    return jax.shard_map(ring, mesh=make_mesh(f"cp={n}"), in_specs=own, out_specs=own)


def rows() -> list[Row]:
    found = [row for t, target in TIMED.items() for row in timed(t, target)]
    simulate_devices(max(DEVICES))
    ways = {"all scores": WAYS["plain"], "flash": WAYS["flash"]}
    ways |= {f"zig-zag, cp={n}": over_devices(n) for n in DEVICES}
    for s in MEASURED:
        held = ", ".join(f"{name} {temp_megabytes(way, s)}" for name, way in ways.items())
        what = f"intermediate results of attention on a device, both passes, {s:,} positions"
        found.append(Row(what, "reported", held))
    return found


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
