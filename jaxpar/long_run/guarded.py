"""Guarded steps: an update is skipped where the gradients are far larger than they were before."""

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import Bool, Float, PyTree

KEPT = 0.9  # of the running mean, in each step that is taken


def guarded_update(
    grads: PyTree[Array],
    params: PyTree[Array],
    state: tuple[PyTree[Array], Float[Array, ""]],
    optimizer: optax.GradientTransformation,
    *,
    factor: float,
    axis: str,
) -> tuple[PyTree[Array], tuple[PyTree[Array], Float[Array, ""]], Bool[Array, ""]]:
    """Updates sharded parameters, or skips the step on all devices, where its gradients are bad.

    Every leaf of `grads` and `params` is split over the axis, and so is what the optimizer's state
    has for it. `state` is that optimizer's state, and the running mean of the norm: a float32
    number, which is 0 as long as no step has been taken. A step is good if the norm of all leaves,
    on all devices, is finite and at most `factor` times the running mean, or, where that is 0, if
    it is finite. In a good step the optimizer updates the parameters, and the mean becomes 0.9
    times itself and 0.1 times the norm, or the norm itself where it was 0. In any other step all
    parameters and the whole state, with its counts, stay as they are, bit for bit. Returns the
    parameters, the state, and whether the step was good. Leaves keep their dtypes; squares and
    their sum are float32.

    Math: good = norm < infinity and (mean = 0 or norm <= factor*mean)
    Comm:
        forward: all_reduce(axis) 1
        backward: nothing
    Memory: params+state
    Source: Chowdhery et al. 2022 (PaLM), section 5.1

    Raises:
        ValueError: `factor` is not above 0.
    """
    if not factor > 0:
        raise ValueError(f"guarded_update: factor {factor:g}; give a number above 0, such as 3")
    inner, mean = state
    norm = _norm(grads, axis)
    good = jnp.isfinite(norm) & ((mean == 0) | (norm <= factor * mean))
    updates, new_inner = optimizer.update(grads, inner, params)
    new_params = optax.apply_updates(params, updates)
    new_mean = jnp.where(mean == 0, norm, KEPT * mean + (1 - KEPT) * norm)
    new = new_params, (new_inner, new_mean)
    params, state = jax.tree.map(lambda x, y: jnp.where(good, x, y), new, (params, state))
    return params, state, good


def _norm(shards: PyTree[Array], axis: str) -> Float[Array, ""]:
    """The norm of all leaves together, on all devices."""
    squares = [jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(shards)]
    return jnp.sqrt(lax.psum(sum(squares, jnp.float32(0)), axis))
