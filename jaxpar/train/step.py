"""One training step for every device: a loss, an optimizer, and a layout put together."""

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
WHOLE = P()  # on every device


def update_all(
    optimizer: optax.GradientTransformation, gradients: Any, params: Any, state: Any
) -> tuple[Any, Any]:
    """The parameters and the state after one update of everything that this device holds."""
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state


@dataclass(frozen=True)
class Layout:
    """How the values of a step lie on the mesh, and what its devices do for them.

    Attributes:
        gradients: what one device computes: (loss_fn, params, batch) -> (loss, gradients), the
            gradients laid out as `update` takes them.
        batch: the partition spec of the batch, or a tree of them.
        params: that of the parameters.
        state: that of the optimizer's state.
        update: (optimizer, gradients, params, state) -> (params, state), on one device.
    """

    gradients: Gradients
    batch: PyTree[P]
    params: PyTree[P] = WHOLE
    state: PyTree[P] = WHOLE
    update: Update = update_all


# A new technique is one line here or in `layouts`, and the function that it names.
DATA_PARALLEL = Layout(partial(data_parallel_gradients, axis="dp"), batch=spec("b_dp t"))


def make_step(
    loss_fn: Loss, optimizer: optax.GradientTransformation, layout: Layout, mesh: Mesh
) -> jax.stages.Wrapped:
    """The jitted step(params, state, batch) -> (params, state, loss), which reuses its memory.

    The arrays given as `params` and `state` are gone after the call: go on with those it returns.
    """

    def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any, Array]:
        loss, gradients = layout.gradients(loss_fn, params, batch)
        params, state = layout.update(optimizer, gradients, params, state)
        return params, state, loss

    return on_mesh(step, layout, mesh)


def on_mesh(step: Step, layout: Layout, mesh: Mesh) -> jax.stages.Wrapped:
    """A step of one device, jitted for all; it reuses the memory of parameters and state."""
    takes = (layout.params, layout.state, layout.batch)
    gives = (layout.params, layout.state, WHOLE)
    return jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=takes, out_specs=gives),
        in_shardings=shardings(mesh, takes),
        out_shardings=shardings(mesh, gives),
        donate_argnums=(0, 1),
    )


def shardings(mesh: Mesh, specs: PyTree[P]) -> PyTree[NamedSharding]:
    """Partition specs on a mesh."""
    return jax.tree.map(partial(NamedSharding, mesh), specs)
