"""The gradients of a step, found microbatch by microbatch, as each device owns them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, P, lax
from jaxtyping import PyTree

from jaxpar.collectives.leaves import (
    LeafLayouts,
    fetch,
    reduce_gradients,
    scatter_gradients,
    specs_of,
    sum_gradients,
)
from jaxpar.mesh import in_mesh_order, vary, varying_axes, zeros
from jaxpar.train.step import Find
from jaxpar.train.trained import replaced, trained

LossAndGradients = tuple[Array, Any]
Loss = Callable[[Any, Any], Array]
FindLocal = Callable[[Any, Any, Any], LossAndGradients]
"""(params, batch, scale) -> this device's parts of the loss, and of the gradients times scale."""


def by_microbatches(
    loss_fn: Loss, layouts: PyTree[LeafLayouts], *, microbatches: int, scatters: bool
) -> FindLocal:
    """Finds a device's own gradients, one equal part of its batch after the other.

    `loss_fn` is the mean loss of a part. The gradients are added up in float32; with `scatters`,
    those of every part are reduce-scattered first, so that only shards of them are kept.
    """

    def find(params: Any, batch: Any, scale: Any) -> LossAndGradients:
        def of_part(part: Any) -> LossAndGradients:
            def of_trained(new: Any) -> Array:
                return loss_fn(replaced(params, new), part)

            loss, pull = jax.vjp(of_trained, trained(params))
            (gradients,) = pull(jnp.ones_like(loss) * scale)
            return loss, scatter_gradients(gradients, trained(layouts)) if scatters else gradients

        return _mean(of_part, batch, microbatches)

    return find


def over_devices(
    find: FindLocal,
    layouts: PyTree[LeafLayouts],
    *,
    axes: tuple[str, ...],
    parts: int,
    by_shards: bool,
    apart: tuple[str, ...] = (),
) -> Find:
    """The mean over all devices of what `find` computes on each, as each device owns it.

    Args:
        find: what a device computes with its own tokens.
        layouts: those of the parameters.
        axes: the axes over which devices compute parts of the same gradients.
        parts: into how many equal parts the tokens are split.
        by_shards: whether `find` takes parameters as they are at rest, and returns gradients that
            are scattered already; otherwise both are as in use.
        apart: the axes over which nothing is summed: there, each device has a mean of its own.
    """
    layouts = jax.tree.map(partial(_of_each, axes=apart), layouts)
    of_trained = trained(layouts)

    def of_all(params: Any, batch: Any, scale: Any) -> LossAndGradients:
        # Without the cast, JAX would sum the gradients over these devices by itself.
        params = jax.tree.map(partial(vary, axes=(*axes, *apart)), params)
        with jax.named_scope("fetch"):
            params = params if by_shards else fetch(params, layouts)
        # Divided before the sum over devices: in float16 the sum could overflow.
        loss, gradients = find(params, batch, scale / parts)
        with jax.named_scope("reduce_gradients"):
            if by_shards:
                gradients = sum_gradients(gradients, specs_of(of_trained, "owned"))
            else:
                gradients = reduce_gradients(gradients, of_trained)
        return _sum(loss / parts, apart), gradients

    return of_all


def _of_each(layout: LeafLayouts, axes: tuple[str, ...]) -> LeafLayouts:
    """The layouts of a leaf of which each device of these axes has its own, as along a dim."""
    used, at_rest, owned = (P(*axes, *spec) for spec in (layout.used, layout.at_rest, layout.owned))
    return replace(layout, used=used, at_rest=at_rest, owned=owned)


def _sum(loss: Array, apart: tuple[str, ...]) -> Array:
    axes = in_mesh_order(varying_axes(loss) - {*apart})
    return lax.psum(loss, axes) if axes else loss


def _mean(of_part: Callable[[Any], LossAndGradients], batch: Any, count: int) -> LossAndGradients:
    """The mean of what `of_part` computes of so many equal parts of the batch."""
    if count == 1:
        return of_part(batch)
    parts = jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), batch)
    types = jax.eval_shape(lambda: of_part(jax.tree.map(lambda leaf: leaf[0], parts)))

    def add(total: LossAndGradients, part: PyTree[Array]) -> tuple[LossAndGradients, None]:
        return jax.tree.map(jnp.add, total, of_part(part)), None

    none = jax.tree.map(
        lambda like: zeros(like.update(dtype=jnp.promote_types(like.dtype, jnp.float32))), types
    )
    total, _ = lax.scan(add, none, parts)
    return jax.tree.map(lambda leaf, like: (leaf / count).astype(like.dtype), total, types)
