"""What a device holds beside its arguments in a step, by schedule and number of microbatches."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks import Row
from jaxpar.drawing.curves import Curves
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.model import Settings
from jaxpar.train.recipe import make_recipe
from jaxpar.train.setup import set_up

STAGES, EXAMPLES = 4, 2
MICROBATCHES = (4, 8, 16, 32)
SCHEDULES = ("gpipe", "breadth-first", "1f1b", "interleaved", "zb-h1", "zb-v")
SETTINGS = Settings(layers=8, d_model=64, heads=4, sequence=64)
PICTURE = Path(__file__).parents[1] / "docs" / "pipeline_memory.svg"


def temp_bytes(schedule: str, microbatches: int) -> int:
    batch_size = microbatches * EXAMPLES
    recipe = make_recipe(
        f"pp={STAGES}", batch=batch_size, schedule=schedule, microbatches=microbatches
    )
    mesh = make_mesh(recipe.layout.mesh_sizes)
    shape, replicated = (batch_size, SETTINGS.sequence + 1), NamedSharding(mesh, P())
    batch = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=replicated)
    memory = set_up(SETTINGS, recipe, mesh, batch, 0, None).report.memory
    assert memory
    return memory.temp_bytes


def rows() -> list[Row]:
    simulate_devices(STAGES)
    found = {name: list(map(partial(temp_bytes, name), MICROBATCHES)) for name in SCHEDULES}
    curves = {name: [held / 1e6 for held in temps] for name, temps in found.items()}
    title = f"Intermediate results of a device, pp={STAGES}"
    picture = Curves(title, "microbatches", "MB", MICROBATCHES, curves)
    PICTURE.write_text(picture.to_svg())
    sizes = ", ".join(map(str, MICROBATCHES))
    what = f"intermediate results of a device, pp={STAGES}, {{}}, with {sizes} microbatches"
    return [
        Row(what.format(name), "reported", ", ".join(f"{mb:.1f}" for mb in temps) + " MB")
        for name, temps in curves.items()
    ]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.target, row.measured, sep=" | ")
