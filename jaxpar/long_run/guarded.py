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
    Source: Chowdhery et al. 2022 (PaLM), section 5.1, who leave out the batches around a spike;
        the rule is ours

    Raises:
        ValueError: `factor` is not above 0.
    """
    if not factor > 0:
        raise ValueError(f"guarded_update: factor {factor:g}; give a number above 0, such as 3")
    inner, mean = state
    good, new_mean = judge_norm(_norm(grads, axis), mean, factor=factor)
    updates, new_inner = optimizer.update(grads, inner, params)
    new = optax.apply_updates(params, updates), new_inner
    params, inner = jax.tree.map(lambda x, y: jnp.where(good, x, y), new, (params, inner))
    return params, (inner, new_mean), good


def judge_norm(
    norm: Float[Array, ""], mean: Float[Array, ""], *, factor: float
) -> tuple[Bool[Array, ""], Float[Array, ""]]:
    """Whether a step is good, by the norm of its gradients, and the running mean after it.

    It is good if the norm is finite, and at most `factor` times the running mean of earlier good
    steps; that is 0 where there was none.

    Math: good = norm < infinity and (mean = 0 or norm <= factor*mean)
    Comm:
        forward: nothing
        backward: nothing
    Memory: 1
    Source: Chowdhery et al. 2022 (PaLM), section 5.1, who leave out the batches around a spike;
        the rule is ours
    """
    good = jnp.isfinite(norm) & ((mean == 0) | (norm <= factor * mean))
    moved = jnp.where(mean == 0, norm, KEPT * mean + (1 - KEPT) * norm)
    return good, jnp.where(good, moved, mean)


def _norm(shards: PyTree[Array], axis: str) -> Float[Array, ""]:
    """The norm of all leaves together, on all devices."""
    squares = [jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(shards)]
    return jnp.sqrt(lax.psum(sum(squares, jnp.float32(0)), axis))
