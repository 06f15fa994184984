"""Losses that answers are given: means over the examples of a batch."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def squared_error(params: dict[str, Array], batch: dict[str, Array]) -> Array:
    """Of a network with one hidden layer and one output: inputs [b, d], targets [b]."""
    hidden = jnp.tanh(batch["inputs"] @ params["w_in"] + params["bias"][None])
    return jnp.mean((hidden @ params["w_out"] - batch["targets"]) ** 2)


def layered_error(params: list[dict[str, Array]], batch: tuple[Array, Array]) -> Array:
    """Of a network given as a list of layers: inputs [b, d], targets [b, f]."""
    x, targets = batch
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"]) * layer["scale"][None]
    return jnp.mean((x @ params[-1]["w"] - targets) ** 2)
