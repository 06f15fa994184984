"""GPipe in a few lines: a loop over ticks, and autodiff, which runs the pipeline backward.

Device i of the axis holds stage i, which is a part of the layers, and activations travel from
device to device.

All devices run the same program, so each of them computes its stage in every tick. An idle device
computes on zeros, and its result is not used; the stage and its derivative must therefore be finite
at zero. `jaxpar.parallel.pipeline` runs any schedule, and computes nothing that is not used.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PyTree


def send_on(x: Float[Array, "..."], *, axis: str) -> Float[Array, "..."]:
    """Sends x to the next device; the first device receives zeros.

    Math: y_0 = 0; y_(i+1) = x_i
    Comm:
        forward: permute(axis) x
        backward: permute(axis) x
    Memory: x
    Source: Huang et al. 2019 (GPipe), section 2.2
    """
    return lax.ppermute(x, axis, [(i, i + 1) for i in range(lax.axis_size(axis) - 1)])


def naive_forward(
    stage_fn: Callable[[Any, Array], Array],
    params: PyTree[Array],
    x: Float[Array, "..."],
    *,
    axis: str,
) -> Float[Array, "..."]:
    """Runs the whole batch through one stage after the other: only one device works at a time.

    `stage_fn(params, x) -> x` is the stage of this device. Only the x of device 0 is used. The
    last device returns the result, and the others return zeros.

    Math: y = stage_(n-1)(... stage_1(stage_0(x)))
    Comm:
        forward: permute(axis) (n-1)*x
        backward: permute(axis) (n-1)*x
    Memory: x
    Source: Huang et al. 2019 (GPipe), figure 2b
    """
    n, rank = lax.axis_size(axis), lax.axis_index(axis)

    def stage(x: Array, _: None) -> tuple[Array, None]:
        return send_on(stage_fn(params, x), axis=axis), None

    x, _ = lax.scan(stage, jnp.where(rank == 0, x, 0), length=n - 1)
    return jnp.where(rank == n - 1, stage_fn(params, x), 0)


def pipeline_forward(
    stage_fn: Callable[[Any, Array], Array],
    params: PyTree[Array],
    microbatches: Float[Array, "m ..."],
    *,
    axis: str,
) -> Float[Array, "m ..."]:
    """GPipe's forward pass: in every tick, each device computes a microbatch and sends it on.

    `stage_fn(params, x) -> x` is the stage of this device; x has the shape of a microbatch. Only
    the microbatches of device 0 are used. The last device returns their results, in order, and the
    others return zeros. The derivative is GPipe's backward pass.

    Math: y_k = stage_(n-1)(... stage_1(stage_0(microbatches_k)))
    Comm:
        forward: permute(axis) (m+n-1)*x
        backward: permute(axis) (m+n-1)*x
    Memory: m*x
    Source: Huang et al. 2019 (GPipe), section 2.3
    """
    n, rank = lax.axis_size(axis), lax.axis_index(axis)
    # The last microbatch enters at tick m - 1, and leaves the last stage n - 1 ticks later.
    padding = jnp.zeros_like(microbatches, shape=(n - 1, *microbatches.shape[1:]))
    inputs = jnp.where(rank == 0, jnp.concatenate([microbatches, padding]), 0)

    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        y = stage_fn(params, received + own)  # one of the two is zeros
        return send_on(y, axis=axis), y

    _, outputs = lax.scan(tick, jnp.zeros_like(inputs[0]), inputs)
    return jnp.where(rank == n - 1, outputs[n - 1 :], 0)


def gpipe_loss(
    stage_fn: Callable[[Any, Array], Array], loss_fn: Callable[[Array, Any], Array], *, axis: str
) -> Callable[[PyTree[Array], tuple[Array, Any]], Float[Array, ""]]:
    """The mean loss of all microbatches as a function of the parameters of this device's stage.

    The function also takes a batch: microbatches, of which only those of device 0 are used, and
    targets, of which only those of the last device are used. Their leaves are [m, ...]. All devices
    return the loss, and the gradient is that with respect to the device's own stage.

    Math: y = (sum_k loss_fn(stages(microbatches_k), targets_k)) / m
    Comm:
        forward: permute(axis) (m+n-1)*x + all_reduce(axis) 1
        backward: permute(axis) (m+n-1)*x
    Memory: 1
    Source: Huang et al. 2019 (GPipe), section 2.3

    Args:
        stage_fn: as in `pipeline_forward`.
        loss_fn: `loss_fn(y, target)` is the loss of one microbatch.
        axis: the mesh axis, each device of which holds a stage.
    """

    def loss(params: PyTree[Array], batch: tuple[Array, Any]) -> Float[Array, ""]:
        microbatches, targets = batch
        y = pipeline_forward(stage_fn, params, microbatches, axis=axis)
        is_last = lax.axis_index(axis) == lax.axis_size(axis) - 1
        return lax.psum(jnp.where(is_last, jax.vmap(loss_fn)(y, targets).mean(), 0.0), axis)

    return loss
