"""Hybrid parallelism: what concerns the parameters of all layouts at once.

Where pp, tp and ZeRO split different leaves over different axes, `jaxpar.collectives.leaves` says
for each leaf which they are; the sums that remain are found from the types of the gradients.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PyTree

from jaxpar.mesh import in_mesh_order, varying_axes


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
    """The gradients, scaled down by one factor if their global norm exceeds `max_norm`; the norm.

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
