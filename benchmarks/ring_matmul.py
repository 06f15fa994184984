"""A product whose rows travel round a ring, against one that gathers them first."""

import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import P, lax

from benchmarks import Row
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.parallel.ring_matmul import ring_matmul

DEVICES, T, D, F = 8, 2048, 1024, 2048
TURNS = 9


def gather_then_matmul(x: jax.Array, w: jax.Array, *, axis: str) -> jax.Array:
    """Multiply all rows at once."""
    return lax.all_gather(x, axis, tiled=True) @ w


def on_devices(function: Callable) -> jax.stages.Wrapped:
    mesh = make_mesh(f"tp={DEVICES}")
    rows, columns = P("tp"), P(None, "tp")
    return jax.jit(
        jax.shard_map(
            lambda x, w: function(x, w, axis="tp"),
            mesh=mesh,
            in_specs=(rows, columns),
            out_specs=columns,
        )
    )


def seconds(step: Callable[[], jax.Array]) -> float:
    start = time.perf_counter()
    step().block_until_ready()
    return time.perf_counter() - start


def rows() -> list[Row]:
    simulate_devices(DEVICES)
    x, w = jnp.ones((T, D)), jnp.ones((D, F))
    sides = [on_devices(function) for function in (ring_matmul, gather_then_matmul)]
    reports = [inspect(side, x, w) for side in sides]
    sent, gathered = (report.wire_bytes_by_axis()["tp",] for report in reports)
    held, all_rows = (report.memory.temp_bytes for report in reports if report.memory)
    turns = [[seconds(lambda f=side: f(x, w)) for side in sides] for _ in range(1 + TURNS)][1:]
    ours, plain = (statistics.median(side) for side in zip(*turns, strict=True))
    what = f"ring matmul against gather-then-matmul, [{T}, {D}] @ [{D}, {F}] on {DEVICES} devices: "
    return [
        Row(f"{what}bytes sent", "1.0", f"{sent / gathered:.2f} ({sent / 1e6:.1f} MB each)"),
        Row(
            f"{what}temp bytes",
            "below 1",
            f"{held / all_rows:.2f} ({held / 1e6:.1f} MB, {all_rows / 1e6:.1f} MB)",
        ),
        Row(
            f"{what}time (simulated devices share the cores, and overlap nothing)",
            "reported",
            f"{ours / plain:.2f} ({ours:.3f} s, {plain:.3f} s)",
        ),
    ]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
