"""Hybrid parallelism: what concerns the parameters of all layouts at once.

Where pp, tp and ZeRO split different leaves over different axes, `jaxpar.collectives.leaves` says
for each leaf which they are; the sums that remain are found from the types of the gradients.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, PyTree

from jaxpar.mesh import in_mesh_order, vary, varying_axes, zeros


def global_norm(grads: PyTree[Float[Array, "..."]]) -> Float[Array, ""]:
    """The norm of all leaves together, whatever axes each of them is split over.

    The squares of a leaf are summed over the axes over which its type says that it differs, so that
    a replicated leaf counts once. They are summed in float32, or in float64 if a leaf has that, and
    one number is sent for each different set of axes; `sets` is the number of these sets.

    Math: y = sqrt(sum over leaves of sum_j sum x_j**2, over the axes in varying_axes(x))
    Comm:
        forward: all_reduce(axis) sets
        backward: nothing
    Memory: 1
    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1; Shoeybi et al. 2019, section 3
    """
    squares: dict[frozenset[str], Array] = {}
    for leaf in jax.tree.leaves(grads):
        wide = leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))
        axes = varying_axes(leaf)
        squares[axes] = squares.get(axes, jnp.zeros((), wide.dtype)) + jnp.sum(wide * wide)
    totals = [
        lax.psum(square, in_mesh_order(axes)) if axes else square
        for axes, square in squares.items()
    ]
    return jnp.sqrt(sum(totals, jnp.float32(0)))


def clip_gradients(
    grads: PyTree[Float[Array, "..."]], *, max_norm: float
) -> tuple[PyTree[Float[Array, "..."]], Float[Array, ""]]:
    """Scales all gradients down by one factor if their global norm exceeds `max_norm`.

    Returns the gradients and the norm. The global norm is that of all leaves together, before they
    are scaled. The axes that split a leaf are those in its type (`jaxpar.mesh.varying_axes`), and
    over all other axes the devices hold copies of it. So each number of a leaf counts once, however
    many devices hold it. The squares, their sum and the norm are float32, or float64 if a leaf is,
    and each leaf keeps its dtype.

    Math: y = grads * max_norm/max(max_norm, norm), norm
    Comm:
        forward: all_reduce(axis) sets
        backward: no derivative
    Memory: grads+1
    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1
    """
    norm = global_norm(grads)
    factor = max_norm / jnp.maximum(norm, max_norm)
    return jax.tree.map(lambda leaf: (leaf * factor).astype(leaf.dtype), grads), norm


def masked_gradients(
    loss_fn: Callable[[Any, Any], Float[Array, "..."]],
    params: PyTree[Array],
    batches: PyTree[Array],
    masks: Bool[Array, "m ..."],
    *,
    axes: tuple[str, ...],
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The mean loss of all real tokens, of m microbatches and of all devices, and its gradient.

    `loss_fn(params, batch)` returns a loss for each token of a microbatch. The mask of the
    microbatch has the same shape, and says which tokens are real; the losses of the others may be
    anything, even NaN, but their derivatives are finite. `batches` and `masks` are this device's,
    with leading dim m, and differ over `axes`. `params` are equal on all devices, and typed so.
    Microbatches and devices have different numbers of real tokens, or none, but in all there is at
    least one. The results are equal on all devices; the loss is float32, or float64 if the losses
    are, and each gradient has the dtype of its parameter.

    Math: loss = (sum_j sum_k sum of the real losses) / (sum_j sum_k their number); its gradient
    Comm:
        forward: all_reduce(axes) params+2
        backward: all_reduce(axes) params
    Memory: params+1
    Source: Narayanan et al. 2021 (Megatron-LM), section 2; Hugging Face transformers, issue 34242
    """
    local = jax.tree.map(partial(vary, axes=axes), params)

    def of_microbatch(batch: PyTree[Array], mask: Array) -> tuple[tuple[Array, Array], Any]:
        def real(params: PyTree[Array]) -> tuple[Float[Array, ""], Float[Array, ""]]:
            losses = jnp.where(mask, loss_fn(params, batch), 0)
            wide = jnp.promote_types(losses.dtype, jnp.float32)
            return jnp.sum(losses, dtype=wide), jnp.sum(mask, dtype=wide)

        return jax.value_and_grad(real, has_aux=True)(local)

    def add(total: Any, given: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of_microbatch(*given)), None

    given = batches, masks
    one = jax.eval_shape(lambda: of_microbatch(*jax.tree.map(lambda leaf: leaf[0], given)))
    total, _ = lax.scan(add, jax.tree.map(zeros, one), given)
    (loss, count), gradients = lax.psum(total, axes)
    return loss / count, jax.tree.map(lambda leaf: (leaf / count).astype(leaf.dtype), gradients)


def tied_table_gradient(
    embedding_grad: Float[Array, "v d"],
    head_grad: Float[Array, "d v"],
    *,
    pipeline_axis: str,
    shard_axis: str,
) -> Float[Array, "v_shard d"]:
    """This device's rows of the gradient of a table that is both embedding and head.

    The first stage of the pipeline embeds tokens with the table, and the last one multiplies by its
    transpose. On the first stage (the first device of `pipeline_axis`), `embedding_grad` is the
    gradient from the first use. On the last stage, `head_grad` is that from the second use. On all
    other stages they may be anything. Both come from this device's tokens alone, which differ over
    `shard_axis`. On every stage, device i of the n on `shard_axis` returns the i-th of n equal
    parts of the rows of the sum over both axes; n divides v.

    Math: y = (sum_j embedding_grad_j on stage 0 + head_grad_j.T on stage p-1)[rows of device i]
    Comm:
        forward: reduce_scatter(shard_axis) v*d + all_reduce(pipeline_axis) v*d/n
        backward: all_gather(shard_axis) v*d/n
    Memory: v*d/n
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2; Rajbhandari et al. 2020, section 5.2
    """
    stage, last = lax.axis_index(pipeline_axis), lax.axis_size(pipeline_axis) - 1
    local = jnp.where(stage == 0, embedding_grad, 0) + jnp.where(stage == last, head_grad.T, 0)
    rows = lax.psum_scatter(local, shard_axis, scatter_dimension=0, tiled=True)
    return lax.psum(rows, pipeline_axis)
