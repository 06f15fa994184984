"""What a step does with the loads of experts, which come to it in place of gradients of biases."""

from typing import Any

import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.tree_util import tree_leaves_with_path, tree_map_with_path
from jaxtyping import Float, PyTree

from jaxpar.mesh import in_mesh_order, varying_axes
from jaxpar.model import is_load

BIAS_RATE = 1e-3  # of DeepSeek-AI 2024 (DeepSeek-V3), section 4.2


def balanced(optimizer: optax.GradientTransformation, rate: float) -> optax.GradientTransformation:
    """An optimizer that moves the biases of experts by `rate` against their loads.

    It does as `jaxpar.parallel.expert.update_expert_bias`; all other parameters go by `optimizer`.

    Source: Wang et al. 2024 (Auxiliary-loss-free load balancing), algorithm 1
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        moves, state = optimizer.update(updates, state, params)

        def of_leaf(path: Any, move: Array, load: Array) -> Array:
            return -rate * jnp.sign(load).astype(move.dtype) if is_load(path) else move

        return tree_map_with_path(of_leaf, moves, updates), state

    return optax.GradientTransformation(optimizer.init, update)


def without_loads(gradients: PyTree[Array]) -> PyTree[Array]:
    """The gradients, with None in place of loads."""
    return tree_map_with_path(lambda path, leaf: None if is_load(path) else leaf, gradients)


def with_loads_of(gradients: PyTree[Array], others: PyTree[Array]) -> PyTree[Array]:
    """The gradients of `others`, of which `gradients` are all but the loads."""
    return tree_map_with_path(
        lambda path, leaf, other: other if is_load(path) else leaf,
        gradients,
        others,
        is_leaf=lambda leaf: leaf is None,
    )


def largest_load(gradients: PyTree[Array]) -> Float[Array, ""] | None:
    """The load of the busiest expert of any layer, over the mean; None: there are no experts."""
    loads = [leaf for path, leaf in tree_leaves_with_path(gradients) if is_load(path)]
    if not loads:
        return None
    largest = 1 + jnp.stack([leaf.max() for leaf in loads]).max().astype(jnp.float32)
    axes = in_mesh_order(varying_axes(largest))
    return lax.pmax(largest, axes) if axes else largest
