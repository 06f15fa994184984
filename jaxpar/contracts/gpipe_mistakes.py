"""Wrong answers to the forward pass of GPipe that people write."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake

StageFn = Callable[[Any, Array], Array]
Send = Callable[[Array, str], Array]


def _to_next(x: Array, axis: str) -> Array:
    return lax.ppermute(x, axis, [(i, i + 1) for i in range(lax.axis_size(axis) - 1)])


def _on_last(y: Array, axis: str) -> Array:
    return jnp.where(lax.axis_index(axis) == lax.axis_size(axis) - 1, y, 0)


def _ticks(stage_fn: StageFn, params: Any, fed: Array, axis: str, send: Send = _to_next) -> Array:
    """What this device makes, tick by tick, if device 0 takes `fed`."""

    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        y = stage_fn(params, jnp.where(lax.axis_index(axis) == 0, own, received))
        return send(y, axis), y

    return lax.scan(tick, jnp.zeros_like(fed[0]), fed)[1]


def _fed(microbatches: Array, ticks: int) -> Array:
    """The last microbatch again and again in ticks that have none."""
    return microbatches[jnp.minimum(jnp.arange(ticks), len(microbatches) - 1)]


def _all_ticks(microbatches: Array, axis: str) -> Array:
    return _fed(microbatches, len(microbatches) + lax.axis_size(axis) - 1)


def _results(made: Array, microbatches: Array, axis: str) -> Array:
    """Of the last device, from the tick in which microbatch 0 is there; zeros where ticks lack."""
    made = made[lax.axis_size(axis) - 1 :]
    missing = jnp.zeros_like(microbatches, shape=(len(microbatches) - len(made), *made.shape[1:]))
    return _on_last(jnp.concatenate([made, missing]), axis)


def _piped(
    stage_fn: StageFn, params: Any, microbatches: Array, axis: str, send: Send = _to_next
) -> Array:
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis, send)
    return _results(made, microbatches, axis)


def _outputs_too_early(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    return _on_last(made[: len(microbatches)], axis)


def _one_tick_too_few(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis)[:-1], axis)
    return _results(made, microbatches, axis)


def _m_ticks_only(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    return _results(_ticks(stage_fn, params, microbatches, axis), microbatches, axis)


def _sends_backwards(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    def send(x: Array, axis: str) -> Array:
        return lax.ppermute(x, axis, [(i + 1, i) for i in range(lax.axis_size(axis) - 1)])

    return _piped(stage_fn, params, microbatches, axis, send)


def _outputs_everywhere(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    return made[lax.axis_size(axis) - 1 :]


def _adds_own_input(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        y = stage_fn(params, received + own)
        return _to_next(y, axis), y

    m, n = len(microbatches), lax.axis_size(axis)
    late = jnp.zeros_like(microbatches, shape=(n - 1, *microbatches.shape[1:]))
    fed = jnp.concatenate([microbatches, late])
    made = lax.scan(tick, jnp.zeros_like(fed[0]), fed)[1]
    return _on_last(made[-m:], axis)


def _feeds_the_next(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    ticks = len(microbatches) + lax.axis_size(axis) - 1
    made = _ticks(stage_fn, params, _fed(microbatches, ticks + 1)[1:], axis)
    return _results(made, microbatches, axis)


def _feeds_the_first(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    fed = jnp.zeros_like(_all_ticks(microbatches, axis)) + microbatches[:1]
    return _results(_ticks(stage_fn, params, fed, axis), microbatches, axis)


def _one_stage_only(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    return _on_last(jax.vmap(partial(stage_fn, params))(microbatches), axis)


def _outputs_on_all(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    return lax.psum(_piped(stage_fn, params, microbatches, axis), axis)


def _outputs_on_first(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    y = _piped(stage_fn, params, microbatches, axis)
    return lax.ppermute(y, axis, [(lax.axis_size(axis) - 1, 0)])


def _results_of_first(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    return jnp.where(lax.axis_index(axis) == 0, made[lax.axis_size(axis) - 1 :], 0)


def _zeros_on_all(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    made = _ticks(stage_fn, params, _all_ticks(microbatches, axis), axis)
    n = lax.axis_size(axis)
    return jnp.where(lax.axis_index(axis) == n, made[n - 1 :], 0)


def _cuts_gradient(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    def send(x: Array, axis: str) -> Array:
        return _to_next(lax.stop_gradient(x), axis)

    return _piped(stage_fn, params, microbatches, axis, send)


def _misses_ramp(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    def tick(received: Array, own: Array) -> tuple[Array, Array]:
        y = stage_fn(params, jnp.where(lax.axis_index(axis) == 0, own, received))
        return _to_next(y, axis), y

    fed, ramp = _all_ticks(microbatches, axis), lax.axis_size(axis) - 1
    full, _ = lax.scan(tick, jnp.zeros_like(fed[0]), fed[:ramp])
    return _on_last(lax.scan(tick, lax.stop_gradient(full), fed[ramp:])[1], axis)


def _every_stage_everywhere(
    stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str
) -> Array:
    y = lax.all_gather(microbatches, axis)[0]
    stages = lax.all_gather(params, axis)
    y, _ = lax.scan(lambda y, stage: (jax.vmap(partial(stage_fn, stage))(y), None), y, stages)
    return _on_last(y, axis)


def _through_all(stage_fn: StageFn, params: Any, x: Array, axis: str) -> Array:
    """Through one stage after the other."""
    x, _ = lax.scan(
        lambda x, _: (_to_next(stage_fn(params, x), axis), None),
        jnp.where(lax.axis_index(axis) == 0, x, 0),
        length=lax.axis_size(axis) - 1,
    )
    return _on_last(stage_fn(params, x), axis)


def _one_after_the_other(
    stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str
) -> Array:
    return lax.map(lambda x: _through_all(stage_fn, params, x, axis), microbatches)


def _one_large_batch(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    def stage(params: Any, x: Array) -> Array:
        return jax.vmap(partial(stage_fn, params))(x)

    return _through_all(stage, params, microbatches, axis)


def _gathers_activations(
    stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str
) -> Array:
    def send(x: Array, axis: str) -> Array:
        return lax.all_gather(x, axis)[lax.axis_index(axis) - 1]

    return _piped(stage_fn, params, microbatches, axis, send)


def _sends_by_sum(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    def send(x: Array, axis: str) -> Array:
        n, rank = lax.axis_size(axis), lax.axis_index(axis)
        slots = jnp.where((jnp.arange(n) == rank).reshape(-1, *[1] * x.ndim), x[None], 0)
        total = lax.pcast(lax.psum(slots, axis), axis, to="varying")
        return total[rank - 1]

    return _piped(stage_fn, params, microbatches, axis, send)


def _sends_far(stage_fn: StageFn, params: Any, microbatches: Array, *, axis: str) -> Array:
    """Device 0 hands every microbatch out itself, and gets every result back."""
    n, rank = lax.axis_size(axis), lax.axis_index(axis)
    y = jnp.where(rank == 0, microbatches, 0)
    for i in range(n):
        here = lax.ppermute(y, axis, [(0, i)])
        made = jax.vmap(partial(stage_fn, params))(here)
        y = lax.ppermute(made, axis, [(i, 0 if i < n - 1 else i)])
    return y


PIPELINE_FORWARD = (
    Mistake("outputs_too_early", _outputs_too_early, "values"),
    Mistake("one_tick_too_few", _one_tick_too_few, "values"),
    Mistake("m_ticks_only", _m_ticks_only, "values"),
    Mistake("sends_backwards", _sends_backwards, "values"),
    Mistake("outputs_everywhere", _outputs_everywhere, "values"),
    Mistake("adds_own_input", _adds_own_input, "values"),
    Mistake("feeds_the_next", _feeds_the_next, "values"),
    Mistake("feeds_the_first", _feeds_the_first, "values"),
    Mistake("one_stage_only", _one_stage_only, "values"),
    Mistake("outputs_on_all", _outputs_on_all, "values"),
    Mistake("outputs_on_first", _outputs_on_first, "values"),
    Mistake("results_of_first", _results_of_first, "values"),
    Mistake("zeros_on_all", _zeros_on_all, "values"),
    Mistake("cuts_gradient", _cuts_gradient, "gradient"),
    Mistake("misses_ramp", _misses_ramp, "gradient"),
    Mistake("every_stage_everywhere", _every_stage_everywhere, "communication"),
    Mistake("one_after_the_other", _one_after_the_other, "communication"),
    Mistake("one_large_batch", _one_large_batch, "communication"),
    Mistake("gathers_stage_outputs", _gathers_activations, "communication"),
    Mistake("sends_by_sum", _sends_by_sum, "communication"),
    Mistake("through_first_device", _sends_far, "communication"),
)
