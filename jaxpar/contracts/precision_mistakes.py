"""Wrong answers to mixed precision that people write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxpar.contracts.base import Mistake
from jaxpar.parallel.precision import all_finite, cast, select, update_loss_scale

Scaled = tuple[Array, Array]


def _no_reset_after_growth(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    new, _ = update_loss_scale(scale, good_steps, finite, **how)
    return new, jnp.where(finite, good_steps + 1, 0)


def _no_reset_after_overflow(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    new, counted = update_loss_scale(scale, good_steps, finite, **how)
    return new, jnp.where(finite, counted, good_steps)


def _counts_overflows(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    new, _ = update_loss_scale(scale, good_steps, finite, **how)
    return new, (good_steps + 1) % how["growth_interval"]


def _grows_a_step_late(
    scale: Array, good_steps: Array, finite: Array, *, growth_interval: int, **how: Any
) -> Scaled:
    later = growth_interval + 1
    return update_loss_scale(scale, good_steps, finite, growth_interval=later, **how)


def _grows_from_a_step_early(
    scale: Array, good_steps: Array, finite: Array, *, growth_interval: int, **how: Any
) -> Scaled:
    return update_loss_scale(scale, good_steps, finite, growth_interval=growth_interval - 1, **how)


def _grows_every_step(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    new, counted = update_loss_scale(scale, good_steps, finite, **how)
    return jnp.where(finite, scale * how["factor"], new), counted


def _never_grows(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    new, counted = update_loss_scale(scale, good_steps, finite, **how)
    return jnp.where(finite, scale, new), counted


def _below_the_minimum(
    scale: Array, good_steps: Array, finite: Array, *, minimum: float, **how: Any
) -> Scaled:
    return update_loss_scale(scale, good_steps, finite, minimum=0.0, **how)


def _minimum_as_maximum(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    new, counted = update_loss_scale(scale, good_steps, finite, **how)
    return jnp.where(finite, new, jnp.minimum(scale / how["factor"], how["minimum"])), counted


def _flag_turned_round(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    return update_loss_scale(scale, good_steps, ~finite, **how)


def _factor_of_two(
    scale: Array, good_steps: Array, finite: Array, *, factor: float, **how: Any
) -> Scaled:
    return update_loss_scale(scale, good_steps, finite, factor=2.0, **how)


def _gradients(
    loss_fn: Callable, low: Any, batch: Any, scale: float, unscale: Callable | None = None
) -> Any:
    """Right, but for what `unscale` makes of each leaf."""
    gradients = jax.grad(lambda p: scale * loss_fn(p, batch))(low)
    if unscale:
        return jax.tree.map(unscale, gradients)
    return jax.tree.map(lambda g: g / scale, cast(gradients, jnp.float32))


def _half(tree: Any) -> Any:
    return cast(tree, jnp.float16)


def _scale_in_float16(scale: float) -> Array:
    # Converted when the program runs: numpy would warn of the overflow.
    return lax.optimization_barrier(jnp.float32(scale)).astype(jnp.float16)


def _updated(master: Any, opt_state: Any, optimizer: Any, gradients: Any) -> tuple[Any, Any]:
    updates, state = optimizer.update(gradients, opt_state, master)
    return optax.apply_updates(master, updates), state


def _end(master: Any, opt_state: Any, optimizer: Any, gradients: Any) -> Any:
    """A right end of the step, from gradients in float32."""
    finite = all_finite(gradients)
    new = _updated(master, opt_state, optimizer, gradients)
    return *select(finite, new, (master, opt_state)), finite


def _in_float32(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    return _end(master, opt_state, optimizer, _gradients(loss_fn, master, batch, scale))


def _cast_back_to_float32(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    def widened(low: Any, batch: Any) -> Array:
        return loss_fn(cast(low, jnp.float32), batch)

    return _end(master, opt_state, optimizer, _gradients(widened, _half(master), batch, scale))


def _scaled_after_the_cast(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    def late(gradient: Array) -> Array:
        return gradient.astype(jnp.float32) * scale / scale

    gradients = _gradients(loss_fn, _half(master), batch, 1.0, late)
    return _end(master, opt_state, optimizer, gradients)


def _scaled_in_float16(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    def scaled(low: Any, batch: Any) -> Array:
        return loss_fn(low, batch).astype(jnp.float16) * _scale_in_float16(scale)

    def unscaled(gradient: Array) -> Array:
        return gradient.astype(jnp.float32) / scale

    gradients = _gradients(scaled, _half(master), batch, 1.0, unscaled)
    return _end(master, opt_state, optimizer, gradients)


def _not_unscaled(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    def wide(gradient: Array) -> Array:
        return gradient.astype(jnp.float32)

    gradients = _gradients(loss_fn, _half(master), batch, scale, wide)
    return _end(master, opt_state, optimizer, gradients)


def _unscaled_in_float16(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    def narrow(gradient: Array) -> Array:
        return gradient / _scale_in_float16(scale)

    gradients = _gradients(loss_fn, _half(master), batch, scale, narrow)
    return _end(master, opt_state, optimizer, cast(gradients, jnp.float32))


def _master_in_float16(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    finite = all_finite(gradients)
    updates, state = optimizer.update(gradients, opt_state, master)
    new = cast(optax.apply_updates(_half(master), updates), jnp.float32)
    return *select(finite, (new, state), (master, opt_state)), finite


def _decay_of_rounded_weights(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    low = _half(master)
    gradients = _gradients(loss_fn, low, batch, scale)
    finite = all_finite(gradients)
    updates, state = optimizer.update(gradients, opt_state, low)
    new = (optax.apply_updates(master, updates), state)
    return *select(finite, new, (master, opt_state)), finite


def _steps_by_zeros(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    finite = all_finite(gradients)
    gradients = jax.tree.map(lambda g: jnp.where(finite, g, 0), gradients)
    return *_updated(master, opt_state, optimizer, gradients), finite


def _count_advanced(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    finite = all_finite(gradients)
    new = _updated(master, opt_state, optimizer, gradients)

    def choose(new: Array, old: Array) -> Array:
        counts = jnp.issubdtype(new.dtype, jnp.integer)
        return new if counts else jnp.where(finite, new, old)

    return *jax.tree.map(choose, new, (master, opt_state)), finite


def _state_moves_on(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    finite = all_finite(gradients)
    new, state = _updated(master, opt_state, optimizer, gradients)
    return select(finite, new, master), state, finite


def _overflow_ignored(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    return *_updated(master, opt_state, optimizer, gradients), all_finite(gradients)


def _only_the_loss_checked(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    low = _half(master)
    finite = jnp.isfinite(loss_fn(low, batch))
    new = _updated(master, opt_state, optimizer, _gradients(loss_fn, low, batch, scale))
    return *select(finite, new, (master, opt_state)), finite


def _infinite_parts_left_out(
    loss_fn: Callable, master: Any, opt_state: Any, batch: Any, optimizer: Any, *, scale: float
) -> Any:
    gradients = _gradients(loss_fn, _half(master), batch, scale)
    kept = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), gradients)
    return *_updated(master, opt_state, optimizer, kept), all_finite(gradients)


UPDATE_LOSS_SCALE = (
    Mistake("no_reset_after_growth", _no_reset_after_growth, "values"),
    Mistake("no_reset_after_overflow", _no_reset_after_overflow, "values"),
    Mistake("counts_overflows", _counts_overflows, "values"),
    Mistake("grows_a_step_late", _grows_a_step_late, "values"),
    Mistake("grows_from_a_step_early", _grows_from_a_step_early, "values"),
    Mistake("grows_every_step", _grows_every_step, "values"),
    Mistake("never_grows", _never_grows, "values"),
    Mistake("below_the_minimum", _below_the_minimum, "values"),
    Mistake("minimum_as_maximum", _minimum_as_maximum, "values"),
    Mistake("flag_turned_round", _flag_turned_round, "values"),
    Mistake("factor_of_two", _factor_of_two, "values"),
)
MIXED_PRECISION_STEP = (
    Mistake("in_float32", _in_float32, "values"),
    Mistake("cast_back_to_float32", _cast_back_to_float32, "flops"),
    Mistake("scaled_after_the_cast", _scaled_after_the_cast, "values"),
    Mistake("scaled_in_float16", _scaled_in_float16, "values"),
    Mistake("not_unscaled", _not_unscaled, "values"),
    Mistake("unscaled_in_float16", _unscaled_in_float16, "values"),
    Mistake("master_in_float16", _master_in_float16, "values"),
    Mistake("decay_of_rounded_weights", _decay_of_rounded_weights, "values"),
    Mistake("steps_by_zeros", _steps_by_zeros, "values"),
    Mistake("count_advanced", _count_advanced, "values"),
    Mistake("state_moves_on", _state_moves_on, "values"),
    Mistake("overflow_ignored", _overflow_ignored, "values"),
    Mistake("only_the_loss_checked", _only_the_loss_checked, "values"),
    Mistake("infinite_parts_left_out", _infinite_parts_left_out, "values"),
)
