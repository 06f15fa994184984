"""How the size of a training program and its compile time depend on the number of layers."""

import statistics
import time

import jax
import jax.export
import jax.numpy as jnp

from benchmarks import Row
from jaxpar.model import Settings, init, loss_fn

FEW, MANY, TURNS = 4, 32, 3
BATCH = 16


def exported_bytes_and_seconds(layers: int) -> tuple[int, float]:
    """The exported gradient of the loss, and what tracing and compiling it takes."""
    settings = Settings(layers=layers)
    params = jax.eval_shape(lambda key: init(settings, key), jax.random.key(0))
    tokens = jax.ShapeDtypeStruct((BATCH, settings.sequence + 1), jnp.int32)
    jax.clear_caches()
    gradient = jax.jit(jax.value_and_grad(loss_fn(settings)))
    start = time.perf_counter()
    gradient.lower(params, tokens).compile()
    seconds = time.perf_counter() - start
    return len(jax.export.export(gradient)(params, tokens).serialize()), seconds


def rows() -> list[Row]:
    turns = [[exported_bytes_and_seconds(layers) for layers in (FEW, MANY)] for _ in range(TURNS)]
    few_kb, many_kb = (bytes_ / 1e3 for bytes_, _ in turns[0])
    few, many = (statistics.median(s for _, s in side) for side in zip(*turns, strict=True))
    what = f"program size and compile time, {MANY} layers against {FEW}"
    size = f"{many_kb / few_kb:.2f} ({many_kb:.0f} kB, {few_kb:.0f} kB)"
    return [Row(what, "1.2", f"{size}, {many / few:.2f} ({many:.1f} s, {few:.1f} s)")]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
