"""The technique of a layout: which gradients a device keeps, and which parameters it updates."""

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
from jaxpar.layout import Layout
from jaxpar.mesh import vary, zeros
from jaxpar.model import Settings, split_specs
from jaxpar.parallel.fsdp import fsdp_specs
from jaxpar.parallel.zero import update_shards
from jaxpar.train.step import WHOLE, Gradients, Loss, Technique, update_all

LossAndGradients = tuple[Array, Any]


def technique_of(
    layout: Layout, settings: Settings, params: PyTree[Any], optimizer: optax.GradientTransformation
) -> Technique:
    """What each device does in a step of this layout, and how the step's values are sharded.

    `params` are the shapes of the parameters. Where its state is sharded, the optimizer must be
    elementwise.
    """
    return Technique(
        partial(mean_gradients, layout),
        batch=P(layout.batch_axes),
        params=param_specs(layout, settings, params),
        state=sharded_specs(layout, settings, jax.eval_shape(optimizer.init, params)),
        update=partial(_update_shards, layout.state_axis) if layout.zero in (1, 2) else update_all,
    )


def param_specs(layout: Layout, settings: Settings, params: PyTree[Any]) -> PyTree[P]:
    """The partition specs of the parameters, which stages 1 and 2 of ZeRO replicate."""
    return WHOLE if layout.zero in (1, 2) else sharded_specs(layout, settings, params)


def sharded_specs(layout: Layout, settings: Settings, tree: PyTree[Any]) -> PyTree[P]:
    """The partition specs of the optimizer's state, of gradients, or of sharded parameters."""
    if layout.pp > 1 or layout.tp > 1:
        return _split_layers_specs(layout, settings, tree)
    if layout.zero == 0:
        return WHOLE
    over = {"axis": layout.state_axis, "n": layout.sizes[layout.state_axis]}
    if layout.zero < 3:
        return shard_specs(tree, **over)

    def specs(node: Any) -> Any:
        return fsdp_specs(node, **over) if isinstance(node, dict) else WHOLE

    return jax.tree.map(specs, tree, is_leaf=lambda node: isinstance(node, dict))


def _split_layers_specs(layout: Layout, settings: Settings, tree: PyTree[Any]) -> PyTree[P]:
    """The partition specs where devices hold different layers, or parts of each layer."""
    specs = jax.tree.map(lambda _: WHOLE, tree)
    if layout.tp > 1:
        specs = split_specs(settings, tree, axis="tp", n=layout.tp)

    def on_stage(path: tuple[Any, ...], _: Any, spec: P) -> P:
        stacked = any(getattr(key, "key", None) == "layers" for key in path)
        return P("pp", *spec[1:]) if stacked else spec

    return tree_map_with_path(on_stage, tree, specs) if layout.pp > 1 else specs


def mean_gradients(layout: Layout, loss_fn: Loss, params: Any, batch: Any) -> LossAndGradients:
    """The mean loss over all devices and microbatches, and the gradient that this device keeps.

    Stage 1 of ZeRO accumulates the full gradients and then scatters their sum, and stage 2
    scatters those of each microbatch. In stage 3 `loss_fn` takes shards, and its result is already
    the mean over the devices that share one copy of the parameters. Where devices split a layer,
    `loss_fn` takes each device's part of it, and all of this holds for each part.
    """
    axis = layout.state_axis
    # Divided before the sum over devices: in float16 the sum could overflow.
    count = layout.batch_parts // (layout.sizes[axis] if layout.zero == 3 else 1)
    own = partial(_own_gradients, layout.batch_axes, count)
    # A pipeline takes microbatches by itself.
    examples = len(jax.tree.leaves(batch)[0])
    add_up = partial(accumulate, 1 if layout.pp > 1 else examples // layout.microbatch)
    scatter = partial(_scatter, axis)
    match layout.zero:
        case 0:
            found = add_up(own, loss_fn, params, batch)
            found = lax.psum(found, axis) if layout.batch_axes else found
        case 1:
            found = scatter(add_up(own, loss_fn, params, batch))
        case 2:
            found = add_up(lambda *given: scatter(own(*given)), loss_fn, params, batch)
        case _:
            found = add_up(own, loss_fn, params, batch)
    # Beside an axis fsdp, the devices of dp hold the same shards.
    return lax.psum(found, "dp") if len(layout.batch_axes) > 1 else found


def accumulate(
    microbatches: int, gradients: Gradients, loss_fn: Loss, params: Any, batch: PyTree[Array]
) -> LossAndGradients:
    """The mean loss and gradients over so many equal parts of the batch, one after the other.

    `gradients` computes those of one part. They are accumulated in float32.
    """
    if microbatches == 1:
        return gradients(loss_fn, params, batch)
    parts = jax.tree.map(lambda leaf: leaf.reshape(microbatches, -1, *leaf.shape[1:]), batch)
    types = jax.eval_shape(
        lambda parts: gradients(loss_fn, params, jax.tree.map(lambda leaf: leaf[0], parts)), parts
    )

    def add(total: LossAndGradients, part: PyTree[Array]) -> tuple[LossAndGradients, None]:
        return jax.tree.map(jnp.add, total, gradients(loss_fn, params, part)), None

    none = jax.tree.map(lambda like: zeros(like.update(dtype=jnp.float32)), types)
    total, _ = lax.scan(add, none, parts)
    return jax.tree.map(lambda leaf, like: (leaf / microbatches).astype(like.dtype), total, types)


def _own_gradients(
    axes: tuple[str, ...], count: int, loss_fn: Loss, params: Any, batch: Any
) -> LossAndGradients:
    """The loss and gradients of this device's batch, divided by the `count` devices of the mean.

    Without the cast, JAX would sum the gradients over the devices by itself.
    """

    def part(params: Any, batch: Any) -> Array:
        return loss_fn(params, batch) / count

    return jax.value_and_grad(part)(jax.tree.map(partial(vary, axes=axes), params), batch)


def _scatter(axis: str, found: LossAndGradients) -> LossAndGradients:
    loss, gradients = found
    return lax.psum(loss, axis), sum_shards(gradients, axis=axis)


def _update_shards(
    axis: str, optimizer: optax.GradientTransformation, gradients: Any, params: Any, state: Any
) -> tuple[Any, Any]:
    return update_shards(gradients, params, state, optimizer, axis=axis)
