"""Optimizers that answers are given, element by element, and their states made of arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

# A large rate, so that what the optimizer adds stands out from the parameters. It divides by
# 1 - b2**count, of which float32 would keep four digits if b2 were 0.999.
ADAMW = optax.adamw(0.3, b2=0.9, weight_decay=0.5)


def adamw_state(count: Array, mu: Any, nu: Any) -> Any:
    """The state of AdamW after some steps; no mean square is nearly zero, to divide by."""
    nu = jax.tree.map(lambda leaf: leaf + 0.1, nu)
    adam = optax.ScaleByAdamState(count, mu, nu)
    return (adam, optax.EmptyState(), optax.EmptyState())


def _step(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, state, updates)
    if params is None:
        return jax.tree.map(lambda v: -0.2 * v, velocity), velocity
    return jax.tree.map(lambda v, p: -0.2 * v - 0.3 * p, velocity, params), velocity


# Momentum whose weights decay only if they are given: optax's AdamW raises without them.
MOMENTUM = optax.GradientTransformation(lambda params: jax.tree.map(lambda p: 0 * p, params), _step)


def descend(rates: Any, params: Any, gradients: Any) -> Any:
    """A step by the rates in the optimizer's state, one for each element of the parameters.

    Not linear in the gradients: the mean of two steps is not the step by their mean.
    """
    return jax.tree.map(lambda r, p, g: (1 - r / 8) * p - r * jnp.tanh(g), rates, params, gradients)
