"""One training step for every device: a loss, an optimizer and a technique put together."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from jaxpar.mesh import spec
from jaxpar.parallel.data import data_parallel_gradients

Loss = Callable[[Any, Any], Array]
Gradients = Callable[[Loss, Any, Any], tuple[Array, Any]]
Update = Callable[[optax.GradientTransformation, Any, Any, Any], tuple[Any, Any]]
Step = Callable[[Any, Any, Any], tuple[Any, Any, Array]]
WHOLE = P()  # replicated


def update_all(
    optimizer: optax.GradientTransformation, gradients: Any, params: Any, state: Any
) -> tuple[Any, Any]:
    """The parameters and the state after one update of everything that this device holds."""
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state


@dataclass(frozen=True)
class Technique:
    """What each device does in a step, and how the step's values are sharded over the mesh.

    Attributes:
        gradients: what one device computes: (loss_fn, params, batch) -> (loss, gradients), with
            the gradients sharded as `update` takes them.
        batch: the partition spec of the batch, or a tree of them.
        params: the partition specs of the parameters.
        state: the partition specs of the optimizer's state.
        update: (optimizer, gradients, params, state) -> (params, state), on one device.
    """

    gradients: Gradients
    batch: PyTree[P]
    params: PyTree[P] = WHOLE
    state: PyTree[P] = WHOLE
    update: Update = update_all


# A new technique is one line here or in `techniques`, and the function that it names.
DATA_PARALLEL = Technique(partial(data_parallel_gradients, axis="dp"), batch=spec("b_dp t"))


def make_step(
    loss_fn: Loss, optimizer: optax.GradientTransformation, technique: Technique, mesh: Mesh
) -> jax.stages.Wrapped:
    """The jitted step(params, state, batch) -> (params, state, loss), which reuses its memory.

    The memory of `params` and `state` is donated, so these arrays are invalid after the call; use
    the returned ones.
    """

    def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any, Array]:
        loss, gradients = technique.gradients(loss_fn, params, batch)
        params, state = technique.update(optimizer, gradients, params, state)
        return params, state, loss

    return on_mesh(step, technique, mesh)


def on_mesh(step: Step, technique: Technique, mesh: Mesh) -> jax.stages.Wrapped:
    """The step of one device, jitted for all; it reuses the memory of parameters and state."""
    takes = (technique.params, technique.state, technique.batch)
    gives = (technique.params, technique.state, WHOLE)
    return jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=takes, out_specs=gives),
        in_shardings=shardings(mesh, takes),
        out_shardings=shardings(mesh, gives),
        donate_argnums=(0, 1),
    )


def shardings(mesh: Mesh, specs: PyTree[P]) -> PyTree[NamedSharding]:
    """The shardings that partition specs give on a mesh."""
    return jax.tree.map(partial(NamedSharding, mesh), specs)
