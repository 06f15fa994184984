"""What a device holds between steps for every stage of ZeRO and precision, beside the formula."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks import Row
from benchmarks.sides.our_step import BATCH, DEVICES, SETTINGS
from jaxpar.cost.zero import ADAM_FP32, ADAM_MIXED, STAGES, training_states
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.setup import set_up

STATES = {"fp32": ADAM_FP32, "bf16": ADAM_MIXED}


def held_bytes(recipe: Recipe) -> int:
    """The arguments of a step on one device, the batch left out."""
    mesh = make_mesh(recipe.layout.mesh_sizes)
    sharding = NamedSharding(mesh, P(recipe.layout.batch_axes))
    batch = jax.ShapeDtypeStruct((BATCH, SETTINGS.sequence + 1), jnp.int32, sharding=sharding)
    memory = set_up(SETTINGS, recipe, mesh, batch, 0, None).report.memory
    assert memory
    return memory.arguments_bytes - 4 * BATCH * (SETTINGS.sequence + 1) // recipe.layout.devices


def rows() -> list[Row]:
    simulate_devices(DEVICES)
    found = []
    for precision, each in STATES.items():
        for stage in STAGES:
            options = {"batch": BATCH, "zero": stage, "precision": precision}
            held = held_bytes(make_recipe(f"dp={DEVICES}", **options))
            states = training_states(SETTINGS.parameters, each, DEVICES, stage)
            formula = states.total - states.gradients  # gradients live within a step only
            found.append(
                Row(
                    f"bytes that a device holds between steps, {precision}, AdamW, ZeRO stage "
                    f"{stage} on {DEVICES} devices, against the formula",
                    "within 1%",
                    f"{held / formula - 1:+.3%} ({held / 1e6:.3f} MB, {formula / 1e6:.3f} MB)",
                )
            )
    return found


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
