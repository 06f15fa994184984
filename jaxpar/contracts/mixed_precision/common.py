"""Steps in low precision that right and wrong answers have in common."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxpar.contracts.small_losses import TRACE, drawn_steps, overflowing_error
from jaxpar.parallel.precision import all_finite, cast, select


def half(tree: Any) -> Any:
    """A pytree in float16."""
    return cast(tree, jnp.float16)


def wide(tree: Any) -> Any:
    """A pytree in float32."""
    return cast(tree, jnp.float32)


def unscaled(gradients: Any, scale: Any) -> Any:
    """Every gradient divided by the scale of the loss."""
    return jax.tree.map(lambda g: g / scale, gradients)


def updated(master: Any, opt_state: Any, optimizer: Any, gradients: Any) -> tuple[Any, Any]:
    """The parameters and the state after a step of the optimizer."""
    updates, state = optimizer.update(gradients, opt_state, master)
    return optax.apply_updates(master, updates), state


def gradients_of(loss_fn: Any, low: Any, batch: Any, scale: float) -> Any:
    """The gradients of the scaled loss in float32, and divided by the scale."""
    return unscaled(wide(jax.grad(lambda p: scale * loss_fn(p, batch))(low)), scale)


def finished(
    gradients: Any, master: Any, opt_state: Any, optimizer: Any, finite: Array | None = None
) -> tuple[Any, Any, Array]:
    """The end of a right step, from gradients in float32 on; `finite` if they do not decide it."""
    finite = all_finite(gradients) if finite is None else finite
    new = updated(master, opt_state, optimizer, gradients)
    return *select(finite, new, (master, opt_state)), finite


# With this, the loss, and what the optimizer holds of its gradients, have an ordinary size, so that
# a scale that suits the small losses is too large.
TIMES = 2.0**16
LARGER_MOMENTUM = optax.sgd(1e-3 / (TIMES * TRACE), momentum=0.9)


def larger_error(params: dict[str, Array], batch: dict[str, Array]) -> Array:
    """As `overflowing_error`, of ordinary size."""
    return TIMES * overflowing_error(params, batch)


def larger_momentum_state(trace: Any) -> Any:
    """The state of LARGER_MOMENTUM after some steps."""
    trace = jax.tree.map(lambda leaf: TIMES * TRACE * leaf, trace)
    return (optax.TraceState(trace), optax.EmptyState())


def known_when_run(value: float) -> Array:
    """The number as an array that no answer can turn into a number of Python."""
    return lax.optimization_barrier(jnp.float32(value))


def steps_from_zero(
    grows: Array, drawn: Array, every: int, growth_interval: int, spread: int
) -> Array:
    """Steps that count, from 0 on: at the edge of growing, or not."""
    return jnp.maximum(drawn_steps(grows, drawn, every, growth_interval, spread), 0)
