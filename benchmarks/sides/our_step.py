"""Our training step on simulated devices, by the options of a recipe, given as JSON."""

import json
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Int

from benchmarks.sides.race import serve
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.model import Settings
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.setup import set_up

DEVICES, BATCH = 8, 16
SETTINGS = Settings()


def random_tokens(
    batch: int, sequence: int = SETTINGS.sequence, vocabulary: int = SETTINGS.vocabulary
) -> Int[Array, "b s"]:
    """The same in every side that races: one token more than positions."""
    shape = (batch, sequence + 1)
    return jax.random.randint(jax.random.key(1), shape, 0, vocabulary, jnp.int32)


def take_steps(recipe: Recipe, settings: Settings) -> None:
    """Steps of AdamW on random tokens."""
    mesh = make_mesh(recipe.layout.mesh_sizes)
    sharding = NamedSharding(mesh, P(recipe.layout.batch_axes))
    tokens = random_tokens(recipe.batch, settings.sequence, settings.vocabulary)
    tokens = jax.device_put(tokens, sharding)
    like = jax.ShapeDtypeStruct(tokens.shape, tokens.dtype, sharding=sharding)
    made = set_up(settings, recipe, mesh, like, 0, None)
    params, state = made.params, made.state

    def step() -> float:
        nonlocal params, state
        params, state, measures = made.step(params, state, tokens)
        return float(measures.loss)

    serve(step)


def ours(batch: int = BATCH, sequence: int = SETTINGS.sequence, **options: object) -> list[str]:
    """The command that takes steps of this recipe."""
    return [
        "-m",
        "benchmarks.sides.our_step",
        json.dumps(options | {"batch": batch}),
        f"{sequence}",
    ]


if __name__ == "__main__":
    recipe = make_recipe(**json.loads(sys.argv[1]))
    simulate_devices(recipe.layout.devices)
    take_steps(recipe, replace(SETTINGS, sequence=int(sys.argv[2])))
