"""One training step with tensor parallelism: against one device, the compiler, and PyTorch.

All take turns in one run, with the same model, batch, precision and optimizer. The compiler is XLA
for CPUs, which does not merge the all-reduces of the queries', keys' and values' gradients; XLA for
GPUs may, by its pass AllReduceReassociate, and then sends less than it does here.
"""

import jax
import jax.numpy as jnp

from benchmarks import Row
from benchmarks.sides.compiled_step import compiled_step
from benchmarks.sides.our_step import BATCH, DEVICES, SETTINGS, ours
from benchmarks.sides.race import race
from benchmarks.train_step import (
    ONE,
    OPTIMIZER,
    PYTORCH,
    STEP,
    TORCH,
    against,
    compared,
    one_device,
)
from jaxpar.inspector import inspect
from jaxpar.inspector.report import Report
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.model import init
from jaxpar.train.recipe import make_recipe
from jaxpar.train.setup import set_up

COMPILER = "`jax.jit` with shardings alone"
TARGETS = {"tp=8": "1.2", "dp=2,tp=4": "1.1"}
PROCESSES = 4


def wire_bytes(mesh_text: str) -> tuple[float, float]:
    """What a device sends over tp in our step, and in the compiler's."""
    recipe = make_recipe(mesh_text, batch=BATCH)
    mesh = make_mesh(recipe.layout.mesh_sizes)
    step, given = compiled_step(recipe, mesh)
    batch = jax.ShapeDtypeStruct((BATCH, SETTINGS.sequence + 1), jnp.int32, sharding=given[2])
    params = jax.eval_shape(lambda: init(SETTINGS, jax.random.key(0)))
    theirs = inspect(step, params, jax.eval_shape(OPTIMIZER.init, params), batch)
    own = set_up(SETTINGS, recipe, mesh, batch, 0, None).report
    return sent(own), sent(theirs)


def sent(report: Report) -> float:
    return sum((one.times or 0) * one.wire_bytes for one in report.collectives)


def rows() -> list[Row]:
    what = f"{STEP}, {{}} on simulated devices"
    found = []
    for mesh, target in TARGETS.items():
        sides = {
            "ours": ours(mesh=mesh),
            "sequence": ours(mesh=mesh, sequence_parallel=True),
            ONE: one_device(),
            COMPILER: ["-m", "benchmarks.sides.compiled_step", mesh],
        }
        times = race(sides)
        name = what.format(mesh)
        found += [
            Row(f"{name}, against {ONE}", target, compared(times["ours"], times[ONE])),
            Row(
                f"{name}, with sequence parallelism, against {ONE}",
                "reported",
                compared(times["sequence"], times[ONE]),
            ),
            Row(f"{name}, against {COMPILER}", "1.0", compared(times["ours"], times[COMPILER])),
        ]
    simulate_devices(DEVICES)
    for mesh in TARGETS:
        own, theirs = wire_bytes(mesh)
        found.append(
            Row(
                f"bytes that a device sends in this step, {mesh}, against {COMPILER}, on CPU",
                "1.0",
                f"{own / theirs:.2f} ({own / 1e6:.1f} MB, {theirs / 1e6:.1f} MB)",
            )
        )
    mesh = f"tp={PROCESSES}"
    torch = {
        f"{PYTORCH} `parallelize_module`, gloo, {PROCESSES} processes": (
            "0.8",
            [*TORCH, mesh],
        )
    }
    return found + against(what.format(mesh), ours(mesh=mesh), torch)


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
