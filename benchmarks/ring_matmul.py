"""A product whose rows travel round a ring, against one that gathers them first."""

import statistics
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import P, lax
from jax.sharding import NamedSharding

from benchmarks import Row
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.parallel.ring_matmul import ring_matmul

DEVICES, T, D, F = 8, 2048, 1024, 2048
ROWS, COLUMNS = P("tp"), P(None, "tp")
TURNS = 9


def gather_then_matmul(x: jax.Array, w: jax.Array, *, axis: str) -> jax.Array:
    """Multiply all rows at once."""
    return lax.all_gather(x, axis, tiled=True) @ w


def on_devices(function: Callable, mesh: jax.sharding.Mesh) -> jax.stages.Wrapped:
    product = partial(function, axis="tp")
    specs = (ROWS, COLUMNS)
    return jax.jit(jax.shard_map(product, mesh=mesh, in_specs=specs, out_specs=COLUMNS))


def seconds(step: Callable[[], jax.Array]) -> float:
    start = time.perf_counter()
    step().block_until_ready()
    return time.perf_counter() - start


def rows() -> list[Row]:
    simulate_devices(DEVICES)
    mesh = make_mesh(f"tp={DEVICES}")
    x = jax.device_put(jnp.ones((T, D)), NamedSharding(mesh, ROWS))
    w = jax.device_put(jnp.ones((D, F)), NamedSharding(mesh, COLUMNS))
    sides = [on_devices(function, mesh) for function in (ring_matmul, gather_then_matmul)]
    reports = [inspect(side, x, w) for side in sides]
    sent, gathered = (report.wire_bytes_by_axis()["tp",] for report in reports)
    held, all_rows = (report.memory.temp_bytes for report in reports if report.memory)
    turns = [[seconds(lambda f=side: f(x, w)) for side in sides] for _ in range(1 + TURNS)][1:]
    ours, plain = (statistics.median(side) for side in zip(*turns, strict=True))
    what = f"of a ring matmul, [{T}, {D}] @ [{D}, {F}] on {DEVICES} devices, against a gather first"
    temp = f"{held / all_rows:.2f} ({held / 1e6:.1f} MB, {all_rows / 1e6:.1f} MB)"
    took = f"{ours / plain:.2f} ({ours * 1e3:.0f} ms, {plain * 1e3:.0f} ms)"
    return [
        Row(f"bytes sent {what}", "1.0", f"{sent / gathered:.2f} ({sent / 1e6:.1f} MB each)"),
        Row(f"temp bytes {what}", "below 1", temp),
        Row(f"time {what} (nothing overlaps on simulated devices)", "reported", took),
    ]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
