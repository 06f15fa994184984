"""ZeRO: every device holds and updates its shard of the optimizer state.

Stage 1 shards the optimizer state, stage 2 also shards the gradients, and stage 3 also shards the
parameters. The optimizer must be elementwise (AdamW, SGD with momentum, Lion): how it updates a
parameter depends on no other parameter.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.sharding import PartitionSpec as P
from jaxtyping import Float, PyTree

from jaxpar.collectives.leaves import (
    LeafLayouts,
    fetch,
    leaf_layouts,
    own,
    publish,
    scatter_gradients,
)
from jaxpar.mesh import varying_axes


def init_shards(
    params: PyTree[Array], optimizer: optax.GradientTransformation, *, axis: str
) -> PyTree[Array]:
    """The initial optimizer state for this device's shard of the parameters.

    Math: optimizer.init(params[i]) on device i, where params[i] is the i-th of n equal parts
    Comm:
        forward: nothing
        backward: nothing
    Memory: state/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.1
    """
    return optimizer.init(own(params, shard_layouts(params, axis=axis, stage=1)))


def zero1_update(
    grads: PyTree[Array],
    params: PyTree[Array],
    opt_shard: PyTree[Array],
    optimizer: optax.GradientTransformation,
    *,
    axis: str,
) -> tuple[PyTree[Array], PyTree[Array]]:
    """Updates the parameters with the mean gradients; each device computes its shard of the update.

    `grads` are this device's own gradients, and `params` are equal on all devices of the axis.
    Device i updates the i-th of n equal parts of each leaf, split along the first dim that n
    divides (in an exercise dim 0), and `opt_shard` is the optimizer state for these parts. Every
    device gets the full new parameters, and the new state for the same parts. Each leaf is sent,
    and returned, in its own dtype.

    Math: update, opt_shard = optimizer((sum_j grads_j[i])/n, opt_shard, params[i]) on device i;
        y = [params[1] + update_1, ..., params[n] + update_n]
    Comm:
        forward: reduce_scatter(axis) params + all_gather(axis) params/n
        backward: all_gather(axis) params/n
    Memory: params+state/n
    Source: Rajbhandari et al. 2020 (ZeRO), sections 5.1 and 7.2.1
    """
    layouts = shard_layouts(params, axis=axis, stage=1)
    return update_owned(
        mean_shards(grads, layouts, axis=axis), params, opt_shard, optimizer, layouts
    )


def update_owned(
    grads: PyTree[Array],
    params: PyTree[Array],
    state: PyTree[Array],
    optimizer: optax.GradientTransformation,
    layouts: PyTree[LeafLayouts],
) -> tuple[PyTree[Array], PyTree[Array]]:
    """Updates the parameters at rest; each device computes the update of what it owns.

    `grads` are the summed gradients, and `state` is the optimizer state, both as they are owned.
    At stages 1 and 2 the updated shards are then gathered; at stages 0 and 3 nothing is sent. `n`
    is the number of devices that shard a leaf.

    Math: update, state = optimizer(grads, state, params[i]) on device i;
        y = [params[1] + update_1, ..., params[n] + update_n]
    Comm:
        forward: all_gather(layouts) params/n
        backward: nothing
    Memory: params+state
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.1
    """
    owned = own(params, layouts)
    updates, state = optimizer.update(grads, state, owned)
    return publish(optax.apply_updates(owned, updates), layouts), state


def state_specs(optimizer: optax.GradientTransformation, layouts: PyTree[LeafLayouts]) -> PyTree[P]:
    """The partition specs of an elementwise optimizer's state.

    What the state has for a leaf of the parameters is split as that leaf is owned; the rest, such
    as a count of steps, is replicated.

    Source: Rajbhandari et al. 2020 (ZeRO), section 5.1
    """
    scalars = jax.tree.map(lambda _: jax.ShapeDtypeStruct((), jnp.float32), layouts)
    return optax.tree_utils.tree_map_params(
        optimizer,
        lambda _, layout: layout.owned,
        jax.eval_shape(optimizer.init, scalars),
        layouts,
        transform_non_params=lambda _: P(),
    )


def mean_shards(grads: PyTree[Array], layouts: PyTree[LeafLayouts], *, axis: str) -> PyTree[Array]:
    """The mean of the devices' gradients, of which each device gets what it owns.

    Math: y = (sum_j x_j[i])/n on device i, of n equal parts
    Comm:
        forward: reduce_scatter(axis) grads
        backward: all_gather(axis) grads/n
    Memory: grads/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.2
    """

    def mean(shard: Array, layout: LeafLayouts) -> Array:
        total = shard if layout.axes else lax.psum(shard, axis)  # a scalar, say, is not sharded
        return total / lax.axis_size(axis)

    return jax.tree.map(mean, scatter_gradients(grads, layouts), layouts)


def shard_layouts(params: PyTree[Any], *, axis: str, stage: int) -> PyTree[LeafLayouts]:
    """The layouts of parameters that the devices of one axis shard, inside `shard_map`.

    Source: Rajbhandari et al. 2020 (ZeRO), section 5
    """
    return leaf_layouts(params, sizes={axis: lax.axis_size(axis)}, axes=(axis,), stage=stage)


def zero2_accumulate(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    microbatches: PyTree[Array],
    *,
    axis: str,
) -> PyTree[Array]:
    """This device's shard of the mean gradient of m microbatches; the full sum is never held.

    `loss_fn(params, batch)` is the mean loss of the examples in `batch`. `microbatches` is this
    device's shard of all examples, a pytree whose leaves are [m, ...]. `params` are equal on all
    devices of the axis, and typed so. Device i returns the i-th of n equal parts of each leaf of
    the gradient, split along the first dim that n divides (in an exercise dim 0). Each
    gradient is sent, and returned, in the dtype of its parameter.

    Math: y = g[i] on device i, where g is the gradient with respect to params of
        (sum_j sum_k loss_fn(params, microbatches_j[k])) / (n*m)
    Comm:
        forward: reduce_scatter(axis) m*params
        backward: all_gather(axis) m*params/n + all_reduce(axis) params
    Memory: params/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.2
    """
    layouts = shard_layouts(params, axis=axis, stage=2)
    # Without the cast, JAX would insert an all-reduce of the gradients where it differentiates.
    local = lax.pcast(params, axis, to="varying")

    def add(total: PyTree[Array], microbatch: PyTree[Array]) -> tuple[PyTree[Array], None]:
        gradients = mean_shards(jax.grad(loss_fn)(local, microbatch), layouts, axis=axis)
        return jax.tree.map(jnp.add, total, gradients), None

    zeros = jax.tree.map(jnp.zeros_like, own(params, layouts))
    total, _ = lax.scan(add, zeros, microbatches)
    return _divide(total, len(jax.tree.leaves(microbatches)[0]))


def zero3_gradients(
    loss_fn: Callable[[Any, Any], Array],
    param_shards: PyTree[Array],
    batch: PyTree[Array],
    like: PyTree[Any],
    *,
    axis: str,
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The mean loss and this device's shard of its gradient, for sharded parameters.

    This is the simple form: all parameters are gathered at once, and held until the gradient is
    computed. `like` has the shapes of the full parameters.

    Math: loss = (sum_j loss_fn([p_1, ..., p_n], batch_j)) / n, where p are the param_shards;
        y = d loss / d p_i on device i
    Comm:
        forward: all_gather(axis) params/n + reduce_scatter(axis) params + all_reduce(axis) 1
        backward: all_gather(axis) params/n + reduce_scatter(axis) params
    Memory: params/n+1
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.3
    """
    layouts = shard_layouts(like, axis=axis, stage=3)

    def loss_of_shards(shards: PyTree[Array]) -> Array:
        return loss_fn(fetch(shards, layouts), batch)

    # The transpose of the gather is a reduce-scatter, which sums the gradients of all devices.
    loss, gradients = jax.value_and_grad(loss_of_shards)(param_shards)
    return lax.pmean(loss, axis), _divide(gradients, lax.axis_size(axis))


def global_norm_of_shards(shards: PyTree[Float[Array, "..."]], *, axis: str) -> Float[Array, ""]:
    """The norm of all leaves together, of which each device of the axis holds its shards.

    It is a float32, and so are the squares and their sum, whatever the dtype of the leaves.

    Math: y = sqrt(sum_j sum shards_j**2), over all leaves
    Comm:
        forward: all_reduce(axis) 1
        backward: nothing
    Memory: 1
    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1; Shoeybi et al. 2019, section 3
    """
    sharded, replicated = jnp.float32(0), jnp.float32(0)
    for leaf in jax.tree.leaves(shards):
        square = jnp.sum(leaf.astype(jnp.float32) ** 2)
        if axis in varying_axes(leaf):
            sharded += square
        else:  # a scalar, say, of which every device holds all
            replicated += square
    return jnp.sqrt(lax.psum(sharded, axis) + replicated)


def clip_shards(max_norm: float, *, axis: str) -> optax.GradientTransformation:
    """Scales all gradient shards down by one factor where their global norm exceeds `max_norm`.

    Put it before an elementwise optimizer with `optax.chain`. `optax.clip_by_global_norm` would
    clip every device's shards by the norm of these shards alone.

    Math: y = shards * max_norm/max(max_norm, norm of all shards of all leaves)
    Comm:
        forward: all_reduce(axis) 1
        backward: all_reduce(axis) leaves
    Memory: shards
    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1
    """

    def clip(shards: PyTree[Array], _: PyTree[Array] | None) -> PyTree[Array]:
        scale = max_norm / jnp.maximum(global_norm_of_shards(shards, axis=axis), max_norm)
        return jax.tree.map(lambda leaf: (leaf * scale).astype(leaf.dtype), shards)

    return optax.stateless(clip)


def _divide(tree: PyTree[Array], n: int) -> PyTree[Array]:
    return jax.tree.map(lambda leaf: leaf / n, tree)
