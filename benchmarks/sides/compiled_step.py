"""The one-device training step, which the compiler splits over a mesh by shardings alone."""

import sys
from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from benchmarks.sides.our_step import BATCH, SETTINGS, random_tokens
from benchmarks.sides.race import serve
from benchmarks.train_step import OPTIMIZER, one_device_step
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.model import init, split_specs
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.step import WHOLE, shardings


def compiled_step(recipe: Recipe, mesh: Mesh) -> tuple[jax.stages.Wrapped, tuple[Any, ...]]:
    """The jitted step, and the shardings of its arguments: parameters, state and tokens."""
    params = jax.eval_shape(partial(init, SETTINGS), jax.random.key(0))
    trees = (params, jax.eval_shape(OPTIMIZER.init, params))
    over = {"axis": "tp", "n": recipe.layout.tp}
    specs = [split_specs(SETTINGS, tree, **over) for tree in trees]
    given = shardings(mesh, (*specs, P(recipe.layout.batch_axes)))
    returned = (*given[:2], shardings(mesh, WHOLE))
    step = jax.jit(
        one_device_step, in_shardings=given, out_shardings=returned, donate_argnums=(0, 1)
    )
    return step, given


def take_steps(recipe: Recipe) -> None:
    """Steps of AdamW on random tokens."""
    simulate_devices(recipe.layout.devices)
    mesh = make_mesh(recipe.layout.mesh_sizes)
    compiled, (of_params, of_state, of_tokens) = compiled_step(recipe, mesh)
    tokens = jax.device_put(random_tokens(BATCH), of_tokens)
    params = jax.device_put(init(SETTINGS, jax.random.key(0)), of_params)
    state = jax.device_put(OPTIMIZER.init(params), of_state)

    def step() -> float:
        nonlocal params, state
        params, state, loss = compiled(params, state, tokens)
        return float(loss)

    serve(step)


if __name__ == "__main__":
    take_steps(make_recipe(sys.argv[1], batch=BATCH))
