"""Steps whose optimizer state waits in host memory or on disk: gradients first, then the update."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh
from jaxtyping import Bool, PyTree

from jaxpar.inspector.mlir import ir
from jaxpar.inspector.report import Collective
from jaxpar.inspector.stablehlo import read_module
from jaxpar.layout import Layout
from jaxpar.model import Settings
from jaxpar.parallel.offload import OffloadedState, parts
from jaxpar.parallel.precision import LossScale, LossScaling
from jaxpar.train.scaling import scaled_gradients
from jaxpar.train.step import WHOLE, Loss, Step, Technique, shardings
from jaxpar.train.techniques import sharded_specs, technique_of

State = tuple[OffloadedState, LossScale | None]


def make_offloaded_step(find: Callable, update: Callable, scaling: LossScaling | None) -> Step:
    """The step that calls the results of `make_find` and `make_update`.

    Its state is a tuple of the offloaded state and the loss scale. If gradients overflow, the
    parameters and the optimizer's state do not change.
    """

    def step(params: Any, state: State, batch: Any) -> tuple[Any, State, Array]:
        offloaded, scale = state
        loss, gradients, finite = find(params, scale, batch)
        if finite:
            params, _ = offloaded.update(update, gradients, params)
        if scaling and scale:
            scale = scaling.update(scale, finite)
        return params, (offloaded, scale), loss

    return step


def make_find(loss_fn: Loss, technique: Technique, gradients: PyTree[Any], mesh: Mesh) -> Any:
    """The jitted function (params, scale or None, batch) -> (loss, gradients, all finite or not).

    `gradients` are the partition specs of the gradients.
    """

    def find(
        params: Any, scale: LossScale | None, batch: Any
    ) -> tuple[Array, Any, Bool[Array, ""]]:
        if scale is None:
            return *technique.gradients(loss_fn, params, batch), jnp.bool_(True)
        return scaled_gradients(technique.gradients, loss_fn, params, scale.scale, batch)

    takes, gives = (technique.params, WHOLE, technique.batch), (WHOLE, gradients, WHOLE)
    return jax.jit(
        jax.shard_map(find, mesh=mesh, in_specs=takes, out_specs=gives),
        out_shardings=shardings(mesh, gives),
    )


def make_update(
    layout: Layout, settings: Settings, optimizer: optax.GradientTransformation, mesh: Mesh
) -> Any:
    """The jitted function (gradients, state, params) -> (params, state), for one leaf at a time."""

    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        technique = technique_of(layout, settings, params, optimizer)
        specs = sharded_specs(layout, settings, params)
        takes = (specs, technique.state, technique.params)
        gives = (technique.params, technique.state)
        return jax.shard_map(
            lambda gradients, state, params: technique.update(optimizer, gradients, params, state),
            mesh=mesh, in_specs=takes, out_specs=gives,
        )(gradients, state, params)  # fmt: skip

    return jax.jit(update, donate_argnums=(0, 1, 2))


def update_collectives(
    update: jax.stages.Wrapped,
    optimizer: optax.GradientTransformation,
    gradients: PyTree[Any],
    params: PyTree[Any],
) -> tuple[Collective, ...]:
    """The collectives of an update of all leaves; only the shapes of the arguments are used."""
    sent: list[Collective] = []
    for gradient, part in zip(parts(gradients), parts(params), strict=True):
        state = jax.eval_shape(optimizer.init, gradient)
        module = update.lower(gradient, state, part).compiler_ir("stablehlo")
        assert isinstance(module, ir.Module)
        sent += read_module(module)
    return tuple(sent)
