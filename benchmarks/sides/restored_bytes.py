"""Restores a checkpoint onto other meshes, and tells how often each stored byte was read.

Without what compares the files with their checksums, which reads them once more.
"""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.sides.saves import DEVICES, SETTINGS
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.train.checkpoint import Checkpoints, Keeping
from jaxpar.train.manifest import ARRAYS, folder_of
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.setup import Setup, set_up
from jaxpar.train.text import read_library

SAVED = "fsdp=8"
RESTORED = ("fsdp=8", "tp=8", "dp=8", "fsdp=4,tp=2", "pp=4,dp=2")


def begun(mesh: str) -> tuple[Recipe, Setup]:
    """A run on this mesh, before its first step."""
    recipe = make_recipe(mesh, batch=DEVICES)
    devices = make_mesh(recipe.layout.mesh_sizes)
    sharding = NamedSharding(devices, P(recipe.layout.batch_axes))
    batch = jax.ShapeDtypeStruct((DEVICES, SETTINGS.sequence + 1), jnp.int32, sharding=sharding)
    return recipe, set_up(SETTINGS, recipe, devices, batch, 0, None)


def read_bytes() -> int:
    """What this process has read from files so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def main(folder: Path) -> None:
    """Prints a line for each mesh: its name, and the bytes read over those stored."""
    simulate_devices(DEVICES)
    text = read_library()
    recipe, run = begun(SAVED)
    saving = Checkpoints(Keeping(folder), SETTINGS, recipe, text, 0)
    saving.after(1, run.params, run.state, last=True)
    saving.close()
    arrays = folder_of(folder, 1) / ARRAYS
    stored = sum(path.stat().st_size for path in arrays.rglob("*") if path.is_file())
    for mesh in RESTORED:
        recipe, run = begun(mesh)
        restoring = Checkpoints(Keeping(folder, resume=True), SETTINGS, recipe, text, 0)
        before = read_bytes()
        jax.block_until_ready(restoring.restore(run.params, run.state))
        print(mesh, f"{(read_bytes() - before) / stored:.2f}", sep="\t", flush=True)
        restoring.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name) / "run")
