"""ZeRO: every device holds, and updates, its part of the optimizer's state.

Stage 1 shares the state, stage 2 the gradients too, stage 3 the parameters too. The optimizer must
be elementwise (AdamW, SGD with momentum, Lion): what it does to a number depends on no other.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import Float, PyTree

from jaxpar.collectives.shards import gather_shards, mean_shards, own_shards
from jaxpar.mesh import varying_axes


def init_shards(
    params: PyTree[Array], optimizer: optax.GradientTransformation, *, axis: str
) -> PyTree[Array]:
    """The optimizer's first state for this device's part of the parameters.

    Math: optimizer.init(params[i]) on device i, of n equal parts
    Comm:
        forward: nothing
        backward: nothing
    Memory: state/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.1
    """
    return optimizer.init(own_shards(params, axis=axis))


def zero1_update(
    grads: PyTree[Array],
    params: PyTree[Array],
    opt_shard: PyTree[Array],
    optimizer: optax.GradientTransformation,
    *,
    axis: str,
) -> tuple[PyTree[Array], PyTree[Array]]:
    """One update by the mean gradients, of which this device computes its part.

    `grads` are this device's own, `params` equal on all devices of the axis. Of each leaf device i
    updates the i-th of n equal parts of dim 0; `opt_shard` is the optimizer's state for them. The
    new parameters are whole on every device, the new state is for the same part.

    Math: update, opt_shard = optimizer((sum_j grads_j[i])/n, opt_shard, params[i]) on device i;
        y = [params[1] + update_1, ..., params[n] + update_n]
    Comm:
        forward: reduce_scatter(axis) params + all_gather(axis) params/n
        backward: all_gather(axis) params/n
    Memory: params+state/n
    Source: Rajbhandari et al. 2020 (ZeRO), sections 5.1 and 7.2.1
    """
    return update_shards(mean_shards(grads, axis=axis), params, opt_shard, optimizer, axis=axis)


def update_shards(
    grad_shards: PyTree[Array],
    params: PyTree[Array],
    opt_shard: PyTree[Array],
    optimizer: optax.GradientTransformation,
    *,
    axis: str,
) -> tuple[PyTree[Array], PyTree[Array]]:
    """One update of whole parameters, of which this device computes its part.

    Math: update, opt_shard = optimizer(grad_shards_i, opt_shard, params[i]) on device i;
        y = [params[1] + update_1, ..., params[n] + update_n]
    Comm:
        forward: all_gather(axis) params/n
        backward: nothing
    Memory: params+state/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.1
    """
    shards = own_shards(params, axis=axis)
    updates, opt_shard = optimizer.update(grad_shards, opt_shard, shards)
    new = optax.apply_updates(shards, updates)
    return gather_shards(new, params, axis=axis, to="invarying"), opt_shard


def zero2_accumulate(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    microbatches: PyTree[Array],
    *,
    axis: str,
) -> PyTree[Array]:
    """This device's part of the mean gradient of m microbatches, and no more of their sum.

    `loss_fn(params, batch)` is the mean loss of the examples in `batch`. `microbatches` is this
    device's part of all of them, a pytree whose leaves are [m, ...]. `params` are equal on all
    devices of the axis, and typed so. Of each leaf of the gradient device i returns the i-th of n
    equal parts of dim 0.

    Math: y = g[i] on device i, g the derivative of
        (sum_j sum_k loss_fn(params, microbatches_j[k])) / (n*m)
    Comm:
        forward: reduce_scatter(axis) m*params
        backward: all_gather(axis) m*params/n + all_reduce(axis) params
    Memory: params/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.2
    """
    # Without the cast JAX would sum the gradients by itself, where it differentiates.
    local = lax.pcast(params, axis, to="varying")

    def add(total: PyTree[Array], microbatch: PyTree[Array]) -> tuple[PyTree[Array], None]:
        gradients = mean_shards(jax.grad(loss_fn)(local, microbatch), axis=axis)
        return jax.tree.map(jnp.add, total, gradients), None

    zeros = jax.tree.map(jnp.zeros_like, own_shards(params, axis=axis))
    total, _ = lax.scan(add, zeros, microbatches)
    return _over(total, len(jax.tree.leaves(microbatches)[0]))


def zero3_gradients(
    loss_fn: Callable[[Any, Any], Array],
    param_shards: PyTree[Array],
    batch: PyTree[Array],
    like: PyTree[Any],
    *,
    axis: str,
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The mean loss and this device's part of its gradient, by parameters that all devices share.

    The simple form: all parameters are gathered at once, and kept until the gradient is there.
    `like` has the shapes of the whole parameters.

    Math: loss = (sum_j loss_fn([p_1, ..., p_n], batch_j)) / n; y = its derivative by p_i on device
        i, where p are the param_shards
    Comm:
        forward: all_gather(axis) params/n + reduce_scatter(axis) params + all_reduce(axis) 1
        backward: all_gather(axis) params/n + reduce_scatter(axis) params
    Memory: params/n+1
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.3
    """

    def of_shards(shards: PyTree[Array]) -> Array:
        return loss_fn(gather_shards(shards, like, axis=axis), batch)

    # The derivative of the gather is a reduce-scatter: the sum of what every device asks for.
    loss, gradients = jax.value_and_grad(of_shards)(param_shards)
    return lax.pmean(loss, axis), _over(gradients, lax.axis_size(axis))


def global_norm_of_shards(shards: PyTree[Float[Array, "..."]], *, axis: str) -> Float[Array, ""]:
    """The norm of all leaves together, of which every device of the axis holds a part.

    Math: y = sqrt(sum_j sum shards_j**2), over all leaves
    Comm:
        forward: all_reduce(axis) 1
        backward: nothing
    Memory: 1
    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1; Shoeybi et al. 2019, section 3
    """
    parts, wholes = jnp.float32(0), jnp.float32(0)
    for leaf in jax.tree.leaves(shards):
        square = jnp.sum(leaf.astype(jnp.float32) ** 2)
        if axis in varying_axes(leaf):
            parts += square
        else:  # every device holds all of it: a scalar
            wholes += square
    return jnp.sqrt(lax.psum(parts, axis) + wholes)


def clip_shards(max_norm: float, *, axis: str) -> optax.GradientTransformation:
    """Makes shards of gradients smaller, all alike, where their global norm exceeds `max_norm`.

    Put it before an elementwise optimizer with `optax.chain`. `optax.clip_by_global_norm` would
    clip every device's part by the norm of that part alone.

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


def _over(tree: PyTree[Array], n: int) -> PyTree[Array]:
    return jax.tree.map(lambda leaf: leaf / n, tree)
