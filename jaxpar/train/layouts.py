"""The layout of a plan: which gradients a device keeps, and which parameters it updates."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.sharding import PartitionSpec as P
from jax.tree_util import tree_map_with_path
from jaxtyping import PyTree

from jaxpar.collectives.shards import shard_specs, sum_shards
from jaxpar.mesh import vary, zeros
from jaxpar.model import Settings, split_specs
from jaxpar.parallel.fsdp import fsdp_specs
from jaxpar.parallel.zero import update_shards
from jaxpar.train.plan import PIPELINE_AXIS, Plan
from jaxpar.train.step import WHOLE, Gradients, Layout, Loss, update_all

Found = tuple[Array, Any]
"""A loss and its gradients."""


def layout(
    plan: Plan, settings: Settings, params: PyTree[Any], optimizer: optax.GradientTransformation
) -> Layout:
    """How a run of this plan lies on its mesh.

    Args:
        plan: who holds what.
        settings: those of the decoder.
        params: the shapes of the parameters.
        optimizer: elementwise, where devices share its state.
    """
    return Layout(
        partial(mean_gradients, plan),
        batch=P(plan.data_axes),
        params=params_lie(plan, settings, params),
        state=shared(plan, settings, jax.eval_shape(optimizer.init, params)),
        update=partial(_update_shards, plan.shard_axis) if plan.stage in (1, 2) else update_all,
    )


def params_lie(plan: Plan, settings: Settings, params: PyTree[Any]) -> PyTree[P]:
    """How the parameters lie."""
    return shared(plan, settings, params) if plan.stage in (0, 3) else WHOLE


def shared(plan: Plan, settings: Settings, tree: PyTree[Any]) -> PyTree[P]:
    """How what the devices share lies: a state, gradients, or parameters that are shared."""
    if plan.table or plan.split.axis:
        return _layers_shared(plan, settings, tree)
    if plan.stage == 0:
        return WHOLE
    over = {"axis": plan.shard_axis, "n": plan.sizes[plan.shard_axis]}
    if plan.stage < 3:
        return shard_specs(tree, **over)

    def lie(node: Any) -> Any:
        return fsdp_specs(node, **over) if isinstance(node, dict) else WHOLE

    return jax.tree.map(lie, tree, is_leaf=lambda node: isinstance(node, dict))


def _layers_shared(plan: Plan, settings: Settings, tree: PyTree[Any]) -> PyTree[P]:
    """Where devices hold different layers, or parts of each."""
    axis = plan.split.axis
    specs = jax.tree.map(lambda _: WHOLE, tree)
    if axis:
        specs = split_specs(settings, tree, axis=axis, n=plan.sizes[axis])

    def lie(path: tuple[Any, ...], _: Any, spec: P) -> P:
        stacked = any(getattr(key, "key", None) == "layers" for key in path)
        return P(PIPELINE_AXIS, *spec[1:]) if stacked else spec

    return tree_map_with_path(lie, tree, specs) if plan.table else specs


def mean_gradients(plan: Plan, loss_fn: Loss, params: Any, batch: Any) -> Found:
    """The mean loss over all devices and microbatches, and what this device keeps of its gradient.

    Stage 1 adds up whole gradients and shares their sum; stage 2 shares those of each microbatch.
    In stage 3 `loss_fn` takes shards, and is the mean over the devices that share them. Where
    devices share a layer, `loss_fn` takes their parts, and all that is said holds of a part.
    """
    # Divided before the sum over devices: in float16 the sum could overflow.
    count = plan.batch_parts // (plan.sizes[plan.shard_axis] if plan.stage == 3 else 1)
    own = partial(_own_gradients, plan.data_axes, count)
    # A pipeline takes microbatches by itself.
    add_up = partial(accumulate, 1 if plan.table else plan.microbatches)
    share = partial(_share, plan.shard_axis)
    match plan.stage:
        case 0:
            found = add_up(own, loss_fn, params, batch)
            found = lax.psum(found, plan.shard_axis) if plan.data_axes else found
        case 1:
            found = share(add_up(own, loss_fn, params, batch))
        case 2:
            found = add_up(lambda *given: share(own(*given)), loss_fn, params, batch)
        case _:
            found = add_up(own, loss_fn, params, batch)
    return lax.psum(found, plan.replica_axis) if plan.replica_axis else found


def accumulate(
    microbatches: int, gradients: Gradients, loss_fn: Loss, params: Any, batch: PyTree[Array]
) -> Found:
    """The mean of what `gradients` finds for each of so many equal parts of the batch.

    They are added up in float32.
    """
    if microbatches == 1:
        return gradients(loss_fn, params, batch)
    parts = jax.tree.map(lambda leaf: leaf.reshape(microbatches, -1, *leaf.shape[1:]), batch)
    types = jax.eval_shape(
        lambda parts: gradients(loss_fn, params, jax.tree.map(lambda leaf: leaf[0], parts)), parts
    )

    def add(total: Found, part: PyTree[Array]) -> tuple[Found, None]:
        return jax.tree.map(jnp.add, total, gradients(loss_fn, params, part)), None

    none = jax.tree.map(lambda like: zeros(like.update(dtype=jnp.float32)), types)
    total, _ = lax.scan(add, none, parts)
    return jax.tree.map(lambda leaf, like: (leaf / microbatches).astype(like.dtype), total, types)


def _own_gradients(
    axes: tuple[str, ...], count: int, loss_fn: Loss, params: Any, batch: Any
) -> Found:
    """Of this device's share in the mean of `count`.

    Without the cast JAX would sum the gradients over the devices by itself.
    """

    def part(params: Any, batch: Any) -> Array:
        return loss_fn(params, batch) / count

    return jax.value_and_grad(part)(jax.tree.map(partial(vary, axes=axes), params), batch)


def _share(axis: str, found: Found) -> Found:
    loss, gradients = found
    return lax.psum(loss, axis), sum_shards(gradients, axis=axis)


def _update_shards(
    axis: str, optimizer: optax.GradientTransformation, gradients: Any, params: Any, state: Any
) -> tuple[Any, Any]:
    return update_shards(gradients, params, state, optimizer, axis=axis)
