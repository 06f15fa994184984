"""Steps whose optimizer state waits in host memory or on disk: gradients first, then the update."""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jax.sharding import Mesh
from jaxtyping import PyTree

from jaxpar.collectives.leaves import LeafLayouts, specs_of
from jaxpar.inspector.mlir import ir
from jaxpar.inspector.report import Collective
from jaxpar.inspector.stablehlo import read_module
from jaxpar.parallel.offload import OffloadedState, parts
from jaxpar.parallel.precision import LossScale, LossScaling
from jaxpar.parallel.zero import state_specs, update_owned
from jaxpar.train.step import WHOLE, Measures, Step, Technique, clipped_gradients, shardings

State = tuple[OffloadedState, LossScale | None]


def make_offloaded_step(find: Callable, update: Callable, scaling: LossScaling | None) -> Step:
    """The step that calls the results of `make_find` and `make_update`.

    Its state is a tuple of the offloaded state and the loss scale. If gradients overflow, the
    parameters and the optimizer's state do not change.
    """

    def step(params: Any, state: State, batch: Any) -> tuple[Any, State, Measures]:
        offloaded, scale = state
        gradients, measures, finite = find(params, scale, batch)
        if finite:
            params, _ = offloaded.update(update, gradients, params)
        if scaling and scale:
            scale = scaling.update(scale, finite)
        return params, (offloaded, scale), measures

    return step


def make_find(technique: Technique, mesh: Mesh, max_norm: float | None) -> jax.stages.Wrapped:
    """The jitted function (params, scale or None, batch) -> (gradients, measures, finite)."""

    def find(params: Any, scale: LossScale | None, batch: Any) -> Any:
        return clipped_gradients(technique, params, batch, scale, max_norm)

    takes = technique.params, WHOLE, technique.batch
    gives = technique.gradients, WHOLE, WHOLE
    return jax.jit(
        jax.shard_map(find, mesh=mesh, in_specs=takes, out_specs=gives),
        out_shardings=shardings(mesh, gives),
    )


def make_update(
    technique: Technique, optimizer: optax.GradientTransformation, mesh: Mesh
) -> jax.stages.Wrapped:
    """The jitted function (gradients, state, params) -> (params, state), for one leaf at a time."""

    def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        layouts = of_part(technique.layouts, params)
        states = state_specs(optimizer, layouts)
        at_rest, owned = specs_of(layouts, "at_rest"), specs_of(layouts, "owned")
        return jax.shard_map(
            lambda gradients, state, params: update_owned(
                gradients, params, state, optimizer, layouts
            ),
            mesh=mesh,
            in_specs=(owned, states, at_rest),
            out_specs=(at_rest, states),
        )(gradients, state, params)

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


def of_part(layouts: PyTree[LeafLayouts], part: PyTree[Any]) -> PyTree[LeafLayouts]:
    """The layouts of a part of the parameters, whose other leaves are `optax.MaskedNode`."""
    return jax.tree.map(
        lambda leaf, layout: leaf if isinstance(leaf, optax.MaskedNode) else layout,
        part, layouts, is_leaf=lambda node: isinstance(node, optax.MaskedNode),
    )  # fmt: skip
