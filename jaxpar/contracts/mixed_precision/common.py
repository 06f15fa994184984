"""Steps in low precision that right and wrong answers have in common."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

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
