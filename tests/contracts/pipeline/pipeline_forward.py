"""Answers to pipeline_forward: right ones by other routes, and wrong ones."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.pipeline.pipeline_forward import piped, to_next
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


def _sizes(microbatches, axis):
    return len(microbatches), lax.axis_size(axis), lax.axis_index(axis)


def _at_tick(microbatches, t):
    t = jnp.clip(t, 0, len(microbatches) - 1)
    return lax.dynamic_index_in_dim(microbatches, t, keepdims=False)


def _results_of_last(tick, microbatches, axis):
    m, n, rank = _sizes(microbatches, axis)
    _, made = lax.scan(tick, jnp.zeros_like(microbatches[0]), jnp.arange(m + n - 1))
    return jnp.where(rank == n - 1, made[n - 1 :], 0)


@right
def piped_by_number_in_a_ring(stage_fn, params, microbatches, *, axis):
    m, n, rank = _sizes(microbatches, axis)

    def tick(t, state):
        x, done = state
        y = stage_fn(params, jnp.where(rank == 0, _at_tick(microbatches, t), x))
        ready = (rank == n - 1) & (t >= n - 1)
        return hop(y, axis), jnp.where(ready, done.at[t - (n - 1)].set(y), done)

    start = jnp.zeros_like(microbatches[0]), jnp.zeros_like(microbatches)
    return lax.fori_loop(0, m + n - 1, tick, start)[1]


@right
def piped_without_idle_arithmetic(stage_fn, params, microbatches, *, axis):
    m, _, rank = _sizes(microbatches, axis)

    def tick(received, t):
        x = jnp.where(rank == 0, _at_tick(microbatches, t), received)
        busy = (rank <= t) & (t < rank + m)
        y = lax.cond(busy, stage_fn, lambda _, x: jnp.zeros_like(x), params, x)
        return to_next(y, axis), y

    return _results_of_last(tick, microbatches, axis)


@right
def piped_unrolled(stage_fn, params, microbatches, *, axis):
    m, n, rank = _sizes(microbatches, axis)
    received, done = jnp.zeros_like(microbatches[0]), []
    for t in range(m + n - 1):
        y = stage_fn(params, jnp.where(rank == 0, microbatches[min(t, m - 1)], received))
        received = to_next(y, axis)
        if t >= n - 1:
            done.append(jnp.where(rank == n - 1, y, 0))
    return jnp.stack(done)


@right
def piped_with_checkpoints(stage_fn, params, microbatches, *, axis):
    rank = lax.axis_index(axis)

    def tick(received, t):
        y = stage_fn(params, jnp.where(rank == 0, _at_tick(microbatches, t), received))
        return to_next(y, axis), y

    checkpointed = jax.checkpoint(tick, prevent_cse=False)
    return _results_of_last(checkpointed, microbatches, axis)


@right
def piped_with_one_permute_less(stage_fn, params, microbatches, *, axis):
    m, n, rank = _sizes(microbatches, axis)

    def tick(x, t):
        received = to_next(x, axis)
        y = stage_fn(params, jnp.where(rank == 0, _at_tick(microbatches, t), received))
        return y, y

    first = stage_fn(params, jnp.where(rank == 0, microbatches[0], 0))
    _, made = lax.scan(tick, first, jnp.arange(1, m + n - 1))
    made = jnp.concatenate([first[None], made])
    return jnp.where(rank == n - 1, made[n - 1 :], 0)


@right
def piped_by_a_queue(stage_fn, params, microbatches, *, axis):
    m, n, rank = _sizes(microbatches, axis)
    mine = jnp.where(rank == 0, microbatches, 0)

    def tick(state, _):
        received, queue = state
        y = stage_fn(params, received + queue[0])
        return (to_next(y, axis), jnp.roll(queue, -1, axis=0).at[-1].set(0)), y

    start = jnp.zeros_like(mine[0]), mine
    _, made = lax.scan(tick, start, length=m + n - 1)
    return jnp.where(rank == n - 1, made[-m:], 0)


@right
def piped_in_the_slots_of_the_inputs(stage_fn, params, microbatches, *, axis):
    """Results take the places of inputs that are used up."""
    m, n, rank = _sizes(microbatches, axis)

    def tick(state, t):
        received, slots = state
        y = stage_fn(params, jnp.where(rank == 0, slots[t % m], received))
        ready = (rank == n - 1) & (t >= n - 1)
        slots = jnp.where(ready, slots.at[(t - n + 1) % m].set(y), slots)
        return (to_next(y, axis), slots), None

    start = jnp.zeros_like(microbatches[0]), microbatches
    (_, slots), _ = lax.scan(tick, start, jnp.arange(m + n - 1))
    return jnp.where(rank == n - 1, slots, 0)


@right
def piped_with_its_own_backward(stage_fn, params, microbatches, *, axis):
    m, n, rank = _sizes(microbatches, axis)
    ticks = jnp.arange(m + n - 1)

    def forward(params, microbatches):
        def tick(received, t):
            x = jnp.where(rank == 0, _at_tick(microbatches, t), received)
            y = stage_fn(params, x)
            return to_next(y, axis), (x, y)

        _, (xs, ys) = lax.scan(tick, jnp.zeros_like(microbatches[0]), ticks)
        return jnp.where(rank == n - 1, ys[n - 1 :], 0), (params, xs)

    def backward(kept, dy):
        params, xs = kept

        def tick(state, now):
            received, sums = state
            t, x = now
            here = (rank == n - 1) & (t >= n - 1)
            last = jnp.where(here, _at_tick(dy, t - n + 1), 0)
            dparams, dx = jax.vjp(stage_fn, params, x)[1](jnp.where(rank == n - 1, last, received))
            sent = lax.ppermute(dx, axis, [(i + 1, i) for i in range(n - 1)])
            return (sent, jax.tree.map(jnp.add, sums, dparams)), dx

        start = jnp.zeros_like(xs[0]), jax.tree.map(jnp.zeros_like, params)
        (_, sums), dx = lax.scan(tick, start, (ticks, xs), reverse=True)
        return sums, jnp.where(rank == 0, dx[:m], 0)

    run = jax.custom_vjp(lambda *args: forward(*args)[0])
    run.defvjp(forward, backward)
    return run(params, microbatches)


@wrong("communication")
def sums_then_masks(stage_fn, params, microbatches, *, axis):
    _, n, rank = _sizes(microbatches, axis)
    total = lax.psum(piped(stage_fn, params, microbatches, axis), axis)
    return jnp.where(rank == n - 1, total, 0)


@wrong("values")
def sends_in_bfloat16(stage_fn, params, microbatches, *, axis):
    def send(x, axis):
        return to_next(x.astype(jnp.bfloat16), axis).astype(x.dtype)

    return piped(stage_fn, params, microbatches, axis, send)


@wrong("communication")
def sends_halves(stage_fn, params, microbatches, *, axis):
    def send(x, axis):
        return jnp.concatenate([to_next(half, axis) for half in jnp.split(x, 2, axis=-1)], axis=-1)

    return piped(stage_fn, params, microbatches, axis, send)


@wrong("communication")
def sends_twice(stage_fn, params, microbatches, *, axis):
    def send(x, axis):
        return (to_next(x, axis) + hop(x, axis)) / 2

    return piped(stage_fn, params, microbatches, axis, send)


@wrong("communication")
def sends_to_all_others(stage_fn, params, microbatches, *, axis):
    def send(x, axis):
        n, rank = lax.axis_size(axis), lax.axis_index(axis)
        slots = jnp.broadcast_to(x, (n, *x.shape))
        return lax.all_to_all(slots, axis, 0, 0)[rank - 1]

    return piped(stage_fn, params, microbatches, axis, send)


@wrong("communication")
def two_in_a_tick(stage_fn, params, microbatches, *, axis):
    pairs = microbatches.reshape(-1, 2, *microbatches.shape[1:])

    def stage(params, x):
        return jax.vmap(partial(stage_fn, params))(x)

    return piped(stage, params, pairs, axis).reshape(microbatches.shape)


@wrong("communication")
def stages_travel(stage_fn, params, microbatches, *, axis):
    _, n, rank = _sizes(microbatches, axis)
    x = jnp.where(rank == 0, microbatches, 0)
    for _ in range(n):
        x = jnp.where(rank == 0, jax.vmap(partial(stage_fn, params))(x), x)
        params = hop(params, axis, -1)
    return lax.ppermute(x, axis, [(0, n - 1)])


@wrong("memory")
def all_microbatches_in_each_tick(stage_fn, params, microbatches, *, axis):
    rank = lax.axis_index(axis)

    def tick(received, t):
        slots = jnp.where(rank == 0, microbatches, received[None])
        y = _at_tick(jax.vmap(partial(stage_fn, params))(slots), t)
        return to_next(y, axis), y

    return _results_of_last(tick, microbatches, axis)


@wrong("values")
def microbatches_of_two_dims(stage_fn, params, microbatches, *, axis):
    m, b, d = microbatches.shape
    return piped(stage_fn, params, microbatches, axis).reshape(m, b, d)


@wrong("gradient")
def gradient_stays_on_its_device(stage_fn, params, microbatches, *, axis):
    send = jax.custom_vjp(lambda x: to_next(x, axis))
    send.defvjp(lambda x: (to_next(x, axis), None), lambda _, dy: (dy,))
    return piped(stage_fn, params, microbatches, axis, lambda x, _: send(x))


@wrong("gradient")
def fixed_parameters(stage_fn, params, microbatches, *, axis):
    return piped(stage_fn, lax.stop_gradient(params), microbatches, axis)


@wrong("gradient")
def fixed_microbatches(stage_fn, params, microbatches, *, axis):
    return piped(stage_fn, params, lax.stop_gradient(microbatches), axis)


@wrong("gradient")
def only_last_result_differentiated(stage_fn, params, microbatches, *, axis):
    y = piped(stage_fn, params, microbatches, axis)
    return jnp.concatenate([lax.stop_gradient(y[:-1]), y[-1:]])


@wrong("values")
def in_reverse(stage_fn, params, microbatches, *, axis):
    return piped(stage_fn, params, microbatches, axis)[::-1]


@right
def piped_choosing_by_cond(stage_fn, params, microbatches, *, axis):
    """The choice of the input is a branch."""
    _, _, rank = _sizes(microbatches, axis)

    def tick(received, t):
        x = lax.cond(rank == 0, lambda: _at_tick(microbatches, t), lambda: received)
        y = stage_fn(params, x)
        return to_next(y, axis), y

    return _results_of_last(tick, microbatches, axis)


@right
def piped_in_two_loops(stage_fn, params, microbatches, *, axis):
    """The ticks that fill the pipeline come first, without results."""
    m, n, rank = _sizes(microbatches, axis)

    def tick(received, t):
        y = stage_fn(params, jnp.where(rank == 0, _at_tick(microbatches, t), received))
        return to_next(y, axis), y

    full, _ = lax.scan(tick, jnp.zeros_like(microbatches[0]), jnp.arange(n - 1))
    _, made = lax.scan(tick, full, n - 1 + jnp.arange(m))
    return jnp.where(rank == n - 1, made, jnp.zeros_like(made))


@wrong("gradient")
def first_tick_on_own_microbatches(stage_fn, params, microbatches, *, axis):
    """Its results are right, but NaN on a device whose microbatches do not count spoils weights."""
    m, n, rank = _sizes(microbatches, axis)

    def tick(x, t):
        received = to_next(x, axis)
        y = stage_fn(params, jnp.where(rank == 0, _at_tick(microbatches, t), received))
        return y, y

    first = stage_fn(params, microbatches[0])
    _, made = lax.scan(tick, first, jnp.arange(1, m + n - 1))
    made = jnp.concatenate([first[None], made])
    return jnp.where(rank == n - 1, made[n - 1 :], 0)


@wrong("values")
def right_up_to_six_microbatches(stage_fn, params, microbatches, *, axis):
    m = min(len(microbatches), 6)
    y = piped(stage_fn, params, microbatches[:m], axis)
    return jnp.concatenate([y, jnp.zeros_like(microbatches[m:])])


@wrong("values")
def right_up_to_four_stages(stage_fn, params, microbatches, *, axis):
    _, n, _ = _sizes(microbatches, axis)
    y = piped(stage_fn, params, microbatches, axis)
    return y if n <= 4 else jnp.zeros_like(y)


@wrong("values")
def for_several_stages_only(stage_fn, params, microbatches, *, axis):
    _, n, _ = _sizes(microbatches, axis)
    return piped(stage_fn, params, microbatches, axis) * (n > 1)


@wrong("values")
def for_several_microbatches_only(stage_fn, params, microbatches, *, axis):
    return piped(stage_fn, params, microbatches, axis) * (len(microbatches) > 1)


@wrong("values")
def slots_in_float32(stage_fn, params, microbatches, *, axis):
    m, n, rank = _sizes(microbatches, axis)

    def tick(t, state):
        x, done = state
        y = stage_fn(params, jnp.where(rank == 0, _at_tick(microbatches, t), x))
        ready = (rank == n - 1) & (t >= n - 1)
        return hop(y, axis), jnp.where(ready, done.at[t - (n - 1)].set(y.astype(done.dtype)), done)

    done = lax.pcast(jnp.zeros(microbatches.shape), axis, to="varying")
    return lax.fori_loop(0, m + n - 1, tick, (jnp.zeros_like(microbatches[0]), done))[1]


@wrong("communication")
def carries_and_sends_float32(stage_fn, params, microbatches, *, axis):
    def send(x, axis):
        return to_next(x.astype(jnp.float32), axis).astype(x.dtype)

    return piped(stage_fn, params, microbatches, axis, send)


@wrong("values")
def for_batches_of_vectors(stage_fn, params, microbatches, *, axis):
    """Microbatches have two dims at least, and three at most."""
    if microbatches.ndim == 4:
        m, b, t, d = microbatches.shape
        y = piped(stage_fn, params, microbatches.reshape(m, b * t, d), axis)
        return y.reshape(m, b, t, d)
    m, b, d = microbatches.shape
    return piped(stage_fn, params, microbatches, axis).reshape(m, b, d)


@wrong("flops")
def stage_again_for_the_results(stage_fn, params, microbatches, *, axis):
    """What arrives is kept, and goes through the last stage once more at the end."""
    m, n, rank = _sizes(microbatches, axis)

    def tick(received, t):
        x = jnp.where(rank == 0, _at_tick(microbatches, t), received)
        return to_next(stage_fn(params, x), axis), x

    _, xs = lax.scan(tick, jnp.zeros_like(microbatches[0]), jnp.arange(m + n - 1))
    y = jax.vmap(partial(stage_fn, params))(xs[n - 1 :])
    return jnp.where(rank == n - 1, y, 0)


@wrong("communication")
def checkpoint_of_all_ticks(stage_fn, params, microbatches, *, axis):
    """The backward pass computes the forward pass again, and sends all of it again."""
    run = jax.checkpoint(lambda params, x: piped(stage_fn, params, x, axis))
    return run(params, microbatches)
