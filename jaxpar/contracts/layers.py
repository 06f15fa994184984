"""Layers that answers are given: functions of one layer's parameters and of x."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


def residual_mlp(params: dict[str, Array], x: Array) -> Array:
    """Two matrices with tanh between, added to x [..., d]."""
    up, down = params["up"], params["down"]
    return x + jnp.tanh(x @ up / len(up)) @ down / len(down)


def scaled_projection(params: tuple[Array, Array], x: Array) -> Array:
    """One square matrix and tanh, scaled and added to x [b, d]."""
    matrix, scale = params
    return x + jnp.tanh(x @ matrix / len(matrix)) * scale[None] / 8


def gentle_mlp(params: dict[str, Array], x: Array) -> Array:
    """As `residual_mlp`, in steps so small that hundreds of random layers do not run away."""
    return x + jnp.tanh(x @ params["up"]) @ params["down"] / 512


def gentle_wave(params: tuple[Array, Array], x: Array) -> Array:
    """One square matrix and a bias, then a sine, added to x [b, d] in small steps."""
    matrix, bias = params
    return x + jnp.sin(x @ matrix + bias[None]) / 64


def tanh_layer(params: tuple[Array, Array], x: Array) -> Array:
    """One square matrix, a bias and tanh for x [..., d]: zeros do not stay zeros."""
    matrix, bias = params
    return jnp.tanh(x @ matrix / len(matrix) ** 0.5 + jnp.expand_dims(bias, range(x.ndim - 1)))


def mlp_shapes(d: int, f: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes in float32: up [d, f] and down [f, d]."""
    return {
        "up": jax.ShapeDtypeStruct((d, f), jnp.float32),
        "down": jax.ShapeDtypeStruct((f, d), jnp.float32),
    }


def square_shapes(d: int, dtype: str) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    """Shapes: a matrix [d, d] and a vector [d]."""
    return jax.ShapeDtypeStruct((d, d), dtype), jax.ShapeDtypeStruct((d,), dtype)
