"""The gradient of a stack of layers on a pipeline: GPipe by scan and autodiff, or a schedule."""

import sys
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from benchmarks.sides.our_step import SETTINGS
from benchmarks.sides.race import serve
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.model import init, pieces
from jaxpar.parallel.gpipe import gpipe_loss
from jaxpar.parallel.pipeline import pipeline_gradients
from jaxpar.parallel.remat import checkpointed, scan_layers
from jaxpar.schedules import make_table

STAGES, MICROBATCHES, EXAMPLES = 4, 16, 4
SCAN, REMAT = "scan", "products"


def gap(y: Array, target: Array) -> Array:
    return jnp.mean((y - target) ** 2)


def gradients(how: str, layers: dict, x: Array, targets: Array) -> tuple[Array, dict]:
    """The loss and its gradient, by scan and autodiff or by the schedule of this name."""
    layer = pieces(SETTINGS).layer
    if how == SCAN:
        loss = gpipe_loss(partial(scan_layers, layer, remat=REMAT), gap, axis="pp")
        return jax.value_and_grad(loss)(layers, (x, targets))
    loss, (_, found) = pipeline_gradients(
        lambda ends, microbatch: microbatch[0],
        checkpointed(layer, REMAT),
        lambda ends, y, microbatch: gap(y, microbatch[1]),
        ({}, layers),
        (x, targets),
        make_table(how, STAGES, MICROBATCHES),
        keep_inputs=False,
        axis="pp",
    )
    return lax.psum(loss, "pp"), found


def compute(how: str) -> None:
    """Gradients of random layers and activations."""
    simulate_devices(STAGES)
    mesh, whole, split = make_mesh(f"pp={STAGES}"), P(), P("pp")
    takes, gives = (split, whole, whole), (whole, split)
    call = jax.jit(
        jax.shard_map(partial(gradients, how), mesh=mesh, in_specs=takes, out_specs=gives)
    )
    layers = init(SETTINGS, jax.random.key(0))["layers"]
    shape = (2, MICROBATCHES, EXAMPLES, SETTINGS.sequence, SETTINGS.d_model)
    x, targets = jax.random.normal(jax.random.key(1), shape)
    serve(lambda: float(call(layers, x, targets)[0]))


if __name__ == "__main__":
    compute(sys.argv[1])
