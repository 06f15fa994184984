"""Steps in low precision that right and wrong answers have in common."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxpar.parallel.precision import cast


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
