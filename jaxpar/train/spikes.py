"""Skips the steps whose gradients are not finite, or far larger than those before them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jaxtyping import Float, Int

from jaxpar.long_run.guarded import judge_norm
from jaxpar.parallel.precision import select

MOST_IN_A_ROW = 10  # so many skipped steps are no spike: the run itself has diverged


class Guarded(NamedTuple):
    """The state of an optimizer that skips steps.

    Attributes:
        inner: the state of the optimizer itself.
        mean: the running mean of the norms of the steps that were taken; 0: there was none.
        skipped: how many steps in a row were skipped, up to the last one.
    """

    inner: Any
    mean: Float[Array, ""]
    skipped: Int[Array, ""]


def skipping(
    optimizer: optax.GradientTransformation, factor: float
) -> optax.GradientTransformationExtraArgs:
    """An optimizer that changes nothing in a step that `judge_norm` does not take.

    Its `update` takes `norm`, that of the gradients of all devices, before clipping.

    Source: Chowdhery et al. 2022 (PaLM), section 5.1, who leave out the batches around a spike;
        the rule is ours
    """

    def init(params: Any) -> Guarded:
        return Guarded(optimizer.init(params), jnp.float32(0), jnp.int32(0))

    def update(updates: Any, state: Any, params: Any = None, **known: Any) -> tuple[Any, Any]:
        good, mean = judge_norm(known["norm"], state.mean, factor=factor)
        moves, inner = optimizer.update(updates, state.inner, params)
        none = jax.tree.map(jnp.zeros_like, moves)
        moves, inner = select(good, (moves, inner), (none, state.inner))
        return moves, Guarded(inner, mean, jnp.where(good, 0, state.skipped + 1))

    return optax.GradientTransformationExtraArgs(init, update)


def told(
    optimizer: optax.GradientTransformation, norm: Float[Array, ""]
) -> optax.GradientTransformation:
    """The optimizer of one step, which knows the norm of its gradients."""
    update = optax.with_extra_args_support(optimizer).update
    return optax.GradientTransformation(optimizer.init, partial(update, norm=norm))


def skipped_in_a_row(state: Any) -> Int[Array, ""] | None:
    """How many steps were skipped up to the last one; None: the optimizer skips none."""
    return state.skipped if isinstance(state, Guarded) else None
