"""Steps whose optimizer state waits in host memory or on disk: gradients first, then the update."""

from dataclasses import dataclass
from functools import cached_property
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
from jaxpar.train.step import WHOLE, Measures, Technique, clipped_gradients, shardings

State = tuple[OffloadedState, LossScale | None]


@dataclass(frozen=True)
class OffloadedStep:
    """A step as two programs: one finds the gradients, and one updates a leaf at a time.

    Its state is a tuple of the offloaded state and the loss scale. If gradients overflow, the
    parameters and the optimizer's state do not change. The arguments are those of `make_step`.
    """

    technique: Technique
    optimizer: optax.GradientTransformation
    mesh: Mesh
    max_norm: float | None = None
    scaling: LossScaling | None = None

    def __call__(self, params: Any, state: State, batch: Any) -> tuple[Any, State, Measures]:
        """The parameters and the state after a step, and its measures."""
        offloaded, scale = state
        gradients, measures, finite = self.find(params, scale, batch)
        if finite:
            params, _ = offloaded.update(self.update, gradients, params)
        if self.scaling and scale:
            scale = self.scaling.update(scale, finite)
        return params, (offloaded, scale), measures

    @cached_property
    def find(self) -> Any:
        """The jitted function (params, scale or None, batch) -> (gradients, measures, finite)."""
        technique = self.technique

        def find(params: Any, scale: LossScale | None, batch: Any) -> Any:
            return clipped_gradients(technique, params, batch, scale, self.max_norm)

        takes = technique.params, WHOLE, technique.batch
        gives = technique.gradients, WHOLE, WHOLE
        return jax.jit(
            jax.shard_map(find, mesh=self.mesh, in_specs=takes, out_specs=gives),
            out_shardings=shardings(self.mesh, gives),
        )

    @cached_property
    def update(self) -> Any:
        """The jitted function (gradients, state, params) -> (params, state), for a single leaf."""

        def update(gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
            layouts = of_part(self.technique.layouts, params)
            states = state_specs(self.optimizer, layouts)
            at_rest, owned = specs_of(layouts, "at_rest"), specs_of(layouts, "owned")
            return jax.shard_map(
                lambda gradients, state, params: update_owned(
                    gradients, params, state, self.optimizer, layouts
                ),
                mesh=self.mesh,
                in_specs=(owned, states, at_rest),
                out_specs=(at_rest, states),
            )(gradients, state, params)

        return jax.jit(update, donate_argnums=(0, 1, 2))

    def update_collectives(
        self, gradients: PyTree[Any], params: PyTree[Any]
    ) -> tuple[Collective, ...]:
        """The collectives of an update of all leaves; only the shapes of the arguments are used."""
        sent: list[Collective] = []
        for gradient, part in zip(parts(gradients), parts(params), strict=True):
            state = jax.eval_shape(self.optimizer.init, gradient)
            module = self.update.lower(gradient, state, part).compiler_ir("stablehlo")
            assert isinstance(module, ir.Module)
            sent += read_module(module)
        return tuple(sent)


def of_part(layouts: PyTree[LeafLayouts], part: PyTree[Any]) -> PyTree[LeafLayouts]:
    """The layouts of a part of the parameters, whose other leaves are `optax.MaskedNode`."""
    return jax.tree.map(
        lambda leaf, layout: leaf if isinstance(leaf, optax.MaskedNode) else layout,
        part, layouts, is_leaf=lambda node: isinstance(node, optax.MaskedNode),
    )  # fmt: skip
