"""Saves and loads a training state, sharded over simulated devices, as `jaxpar train` does."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.sides.saves import DEVICES, SETTINGS, Saver, serve
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.train.checkpoint import Checkpoints, Keeping
from jaxpar.train.recipe import make_recipe
from jaxpar.train.setup import set_up
from jaxpar.train.text import read_library


def main(folder: Path) -> None:
    """Takes one step, so that no state is zero, and then saves and loads."""
    simulate_devices(DEVICES)
    recipe = make_recipe(f"fsdp={DEVICES}", batch=DEVICES)
    mesh = make_mesh(recipe.layout.mesh_sizes)
    sharding = NamedSharding(mesh, P(recipe.layout.batch_axes))
    tokens = jnp.zeros((DEVICES, SETTINGS.sequence + 1), jnp.int32, device=sharding)
    like = jax.ShapeDtypeStruct(tokens.shape, tokens.dtype, sharding=sharding)
    made = set_up(SETTINGS, recipe, mesh, like, 0, None)
    params, state, _ = jax.block_until_ready(made.step(made.params, made.state, tokens))
    text = read_library()

    def checkpoints(folder: Path, *, resume: bool = False) -> Checkpoints:
        return Checkpoints(Keeping(folder, every=1, resume=resume), SETTINGS, recipe, text, 0)

    def save(folder: Path) -> None:
        save_behind(folder)()

    def save_behind(folder: Path) -> Callable[[], None]:
        run = checkpoints(folder)
        run.after(1, params, state, last=False)
        return run.close

    def load(folder: Path) -> None:
        nonlocal params, state
        run = checkpoints(folder, resume=True)
        params, state = jax.block_until_ready(run.restore(params, state))
        run.close()

    serve(Saver(save, save_behind, load), folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
