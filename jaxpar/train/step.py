"""One training step for every device: gradients, their norm, and the update of what is owned."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Bool, PyTree

from jaxpar.collectives.leaves import LeafLayouts, specs_of
from jaxpar.mesh import varying_axes
from jaxpar.parallel.hybrid import clip_gradients, global_norm
from jaxpar.parallel.precision import LossScaling, all_finite, cast, select
from jaxpar.parallel.zero import state_specs, update_owned
from jaxpar.train.experts import dropped_share, largest_load, with_told_of, without_told
from jaxpar.train.spikes import skipped_in_a_row, told
from jaxpar.train.trained import replaced, trained

Find = Callable[[Any, Any, Any], tuple[Array, Any]]
WHOLE = P()  # replicated


class Measures(NamedTuple):
    """What a step tells, equal on all devices.

    Attributes:
        loss: the mean loss of the batch, before the update.
        gradient_norm: the norm of the gradients of all parameters, before clipping; of a round of
            local steps, that of how far it moved them.
        largest_load: of the busiest expert of any layer, over the mean load; None: there are none.
        dropped: the share of the choices of experts that found no row; None: there is no capacity.
        skipped: how many steps in a row were skipped, with this one; None: none ever is.
    """

    loss: Array
    gradient_norm: Array
    largest_load: Array | None = None
    dropped: Array | None = None
    skipped: Array | None = None


Step = Callable[[Any, Any, Any], tuple[Any, Any, Measures]]


@dataclass(frozen=True)
class Technique:
    """How a step finds its gradients, and how the parameters and the batch are sharded.

    Attributes:
        find: what one device computes: (params, batch, scale) -> (loss, gradients): the mean loss
            of the whole batch, and its gradients times `scale`, as this device owns them, with
            respect to the parameters that are trained.
        layouts: the layouts of every leaf of the parameters.
        batch: the partition spec of the batch, or a tree of them.
    """

    find: Find
    layouts: PyTree[LeafLayouts]
    batch: PyTree[P]

    @property
    def params(self) -> PyTree[P]:
        """The partition specs of the parameters between steps."""
        return specs_of(self.layouts, "at_rest")

    @property
    def trained(self) -> PyTree[LeafLayouts]:
        """The layouts of the parameters that are trained."""
        return trained(self.layouts)

    @property
    def gradients(self) -> PyTree[P]:
        """The partition specs of the gradients."""
        return specs_of(self.trained, "owned")


def make_step(
    technique: Technique,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    *,
    max_norm: float | None = None,
    scaling: LossScaling | None = None,
) -> jax.stages.Wrapped:
    """The jitted step(params, state, batch) -> (params, state, measures), which reuses its memory.

    The memory of `params` and `state` is donated, so these arrays are invalid after the call; use
    the returned ones. The optimizer must be elementwise where its state is sharded; `max_norm`
    clips before it. With `scaling`, the state is (optimizer's state, loss scale), and a step whose
    gradients overflow changes nothing but the scale.
    """

    def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any, Measures]:
        inner, scale = state if scaling else (state, None)
        gradients, measures, finite = clipped_gradients(technique, params, batch, scale, max_norm)
        knowing = told(optimizer, measures.gradient_norm)
        old = trained(params)
        with jax.named_scope("update_owned"):
            new = update_owned(gradients, old, inner, knowing, technique.trained)
        if scaling and scale:
            new = select(finite, new, (old, inner))
            scale = scaling.update(scale, finite)
        updated, inner = new
        measures = measures._replace(skipped=skipped_in_a_row(inner))
        params = replaced(params, updated)
        return params, (inner, scale) if scaling else inner, measures

    states = state_specs(optimizer, technique.trained)
    return jitted(step, mesh, technique, (states, WHOLE) if scaling else states)


def jitted(step: Step, mesh: Mesh, technique: Technique, states: PyTree[P]) -> jax.stages.Wrapped:
    """A step of one device as a program of all, which reuses the memory of params and state.

    `states` are the partition specs of the state.
    """
    takes = (technique.params, states, technique.batch)
    gives = (*takes[:2], WHOLE)
    return jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=takes, out_specs=gives),
        in_shardings=shardings(mesh, takes),
        out_shardings=shardings(mesh, gives),
        donate_argnums=(0, 1),
    )


def clipped_gradients(
    technique: Technique, params: Any, batch: Any, scale: Any, max_norm: float | None
) -> tuple[Any, Measures, Bool[Array, ""]]:
    """The gradients as this device owns them, the measures, and whether all gradients are finite.

    With a loss scale, the gradients are in float32, and not scaled any more.
    """
    if scale is None:
        loss, gradients = technique.find(params, batch, 1.0)
    else:
        loss, gradients = technique.find(params, batch, scale.scale)
        gradients = jax.tree.map(lambda leaf: leaf / scale.scale, cast(gradients, jnp.float32))
    with jax.named_scope("clip_gradients"):
        gradients, norm = clipped(gradients, max_norm)
    finite = jnp.bool_(True) if scale is None else _true_everywhere(all_finite(gradients))
    of_experts = largest_load(gradients), dropped_share(gradients)
    return gradients, Measures(loss, norm, *of_experts), finite


def clipped(gradients: Any, max_norm: float | None) -> tuple[Any, Array]:
    """The gradients with at most this norm, and the norm before, without what experts tell."""
    found = without_told(gradients)
    if max_norm is None:
        return gradients, global_norm(found)
    found, norm = clip_gradients(found, max_norm=max_norm)
    return with_told_of(found, gradients), norm


def shardings(mesh: Mesh, specs: PyTree[P]) -> PyTree[NamedSharding]:
    """The shardings that partition specs give on a mesh."""
    return jax.tree.map(partial(NamedSharding, mesh), specs)


def _true_everywhere(here: Bool[Array, ""]) -> Bool[Array, ""]:
    return lax.psum((~here).astype(jnp.int32), tuple(varying_axes(here))) == 0
