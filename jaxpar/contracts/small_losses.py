"""What answers in low precision are given: small losses, whose gradients float16 hardly holds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxpar.contracts.losses import layered_error

# Gradients of about 2**-22, of which float16 holds two bits. The means in an optimizer's state are
# so much larger that an error of 1% in a gradient shows in them, and float16's own does not.
LOSS, MEAN, TRACE = 2.0**-24, 2.0**-14, 2.0**-11

# Weights decay so fast that it shows if they are rounded first.
ADAMW = optax.adamw(0.1, weight_decay=1.0)
MOMENTUM = optax.sgd(1e-3 / TRACE, momentum=0.9)


def overflowing_error(params: dict[str, Array], batch: dict[str, Array]) -> Array:
    """The squared error of two matrices; on a rare batch one gradient is huge.

    It is negative, and that of one element. Computed in the float type of the parameters, but for
    the end.
    """
    hidden = jnp.tanh(batch["inputs"].astype(params["w_in"].dtype) @ params["w_in"])
    error = jnp.mean((_wide(hidden @ params["w_out"]) - batch["targets"]) ** 2)
    huge = jnp.where(batch["rare"].any(), -16.0, 0.0)
    return LOSS * error + huge * _wide(params["w_out"][0])


def overflowing_layers(params: list[dict[str, Array]], batch: tuple[Array, Array, Array]) -> Array:
    """The squared error of a list of layers; on a rare batch most gradients are huge.

    Computed in the float type of the parameters, but for the end.
    """
    inputs, targets, rare = batch
    examples = inputs.astype(params[0]["w"].dtype), _wide(targets)
    error = layered_error(params, examples)
    of_others = layered_error([*params[:-1], lax.stop_gradient(params[-1])], examples)
    return LOSS * (error + jnp.where(rare.any(), 2.0**30, 0.0) * of_others)


def adamw_state(count: Array, mean: Any, square: Any) -> Any:
    """The state of AdamW after 100 steps or more; no mean square is nearly zero."""
    mean = jax.tree.map(lambda leaf: MEAN * leaf, mean)
    square = jax.tree.map(lambda leaf: MEAN**2 * (leaf + 0.1), square)
    adam = optax.ScaleByAdamState(count + 100, mean, square)
    return (adam, optax.EmptyState(), optax.EmptyState())


def momentum_state(trace: Any) -> Any:
    """The state of momentum after some steps."""
    trace = jax.tree.map(lambda leaf: TRACE * leaf, trace)
    return (optax.TraceState(trace), optax.EmptyState())


def first_of(values: Array, every: int) -> Array:
    """The first of each `every` values: one number on one device, or those of all devices."""
    return values[::every].squeeze()


def drawn_flag(overflows: Array, every: int) -> Array:
    """Whether there was no overflow."""
    return ~first_of(overflows, every)


def drawn_steps(grows: Array, drawn: Array, every: int, growth_interval: int, spread: int) -> Array:
    """Steps that count: one less than it takes, where the scale grows; else two less, or more."""
    fewer = growth_interval - 2 - first_of(drawn, every) % spread
    return jnp.where(first_of(grows, every), growth_interval - 1, fewer)


def drawn_scale(low: Array, drawn: Array, every: int, minimum: float) -> Array:
    """A scale: just above the minimum, or some times as much."""
    high = 4 + 8 * first_of(drawn, every)
    return minimum * jnp.where(first_of(low, every), 1.25, high)


def _wide(x: Array) -> Array:
    """In float32 at least, so that the loss is."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
