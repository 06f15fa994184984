"""Optimizers that answers are given: on every device another, as only one has the right state."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def descend(rates: Any, params: Any, gradients: Any) -> Any:
    """A step by the rates in the optimizer's state, one for each element of the parameters.

    Not linear in the gradients: the mean of two steps is not the step by their mean.
    """
    return jax.tree.map(lambda r, p, g: (1 - r / 8) * p - r * jnp.tanh(g), rates, params, gradients)
