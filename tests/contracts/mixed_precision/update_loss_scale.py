"""Answers to update_loss_scale: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def scale_by_cond(scale, good_steps, grads_finite, *, growth_interval, factor, minimum):
    def good():
        return lax.cond(
            good_steps + 1 == growth_interval,
            lambda: (scale * factor, jnp.zeros_like(good_steps)),
            lambda: (scale, good_steps + 1),
        )

    def bad():
        return jnp.maximum(scale / factor, minimum), jnp.zeros_like(good_steps)

    return lax.cond(grads_finite, good, bad)


@right
def scale_by_select(scale, good_steps, grads_finite, *, growth_interval, factor, minimum):
    grown = grads_finite & (good_steps == growth_interval - 1)
    cases = [grown, grads_finite]
    new = jnp.select(cases, [scale * factor, scale], jnp.clip(scale / factor, minimum))
    return new, jnp.select(cases, [0, good_steps + 1], 0)


@right
def scale_by_remainder(scale, good_steps, grads_finite, *, growth_interval, factor, minimum):
    steps = grads_finite * ((good_steps + 1) % growth_interval)
    power = jnp.where(grads_finite, jnp.where(steps == 0, 1, 0), -1)
    least = jnp.where(grads_finite, 0.0, minimum)
    return jnp.maximum(scale * jnp.float32(factor) ** power, least), steps


@right
def scale_by_switch(scale, good_steps, grads_finite, *, growth_interval, factor, minimum):
    steps = good_steps + 1
    which = jnp.where(grads_finite, 1 + (steps >= growth_interval), 0)
    zero = jnp.zeros_like(steps)
    branches = [
        lambda: (jnp.maximum(scale / factor, minimum), zero),
        lambda: (scale, steps),
        lambda: (scale * factor, zero),
    ]
    return lax.switch(which, branches)


@wrong("values")
def scale_by_python_if(scale, good_steps, grads_finite, *, growth_interval, factor, minimum):
    if not grads_finite:
        return max(scale / factor, minimum), 0
    return (scale * factor, 0) if good_steps + 1 == growth_interval else (scale, good_steps + 1)


@wrong("values")
def scale_as_integers(scale, good_steps, grads_finite, *, growth_interval, factor, minimum):
    steps = jnp.where(grads_finite, (good_steps + 1) % growth_interval, 0).astype(jnp.float32)
    new = jnp.where(grads_finite & (steps == 0), scale * factor, scale)
    return jnp.where(grads_finite, new, jnp.maximum(scale / factor, minimum)), steps


@wrong("values")
def scale_agreed_on(scale, good_steps, grads_finite, **how):
    return lax.pmean(scale_by_select(scale, good_steps, grads_finite, **how), "dp")


@wrong("values")
def scale_of_one_branch(scale, good_steps, grads_finite, *, growth_interval, factor, minimum):
    return scale, good_steps + 1


@wrong("values")
def scale_without_floor_for_small(scale, good_steps, grads_finite, *, factor, minimum, **how):
    how |= {"factor": factor, "minimum": minimum}
    new, steps = scale_by_select(scale, good_steps, grads_finite, **how)
    return jnp.where(grads_finite, new, jnp.where(scale > minimum, scale / factor, minimum)), steps


@right
def scale_by_lookup(scale, good_steps, grads_finite, *, growth_interval, factor, minimum):
    steps = good_steps + 1
    grown = steps == growth_interval
    scales = jnp.stack([jnp.maximum(scale / factor, minimum), scale, scale * factor])
    which = grads_finite.astype(jnp.int32) * (1 + grown)
    return scales[which], jnp.array([0, 1, 0])[which] * steps


@right
def scale_by_steps_left(scale, good_steps, grads_finite, *, growth_interval, factor, minimum):
    left = growth_interval - 1 - good_steps
    grown = jnp.where(left == 0, scale * factor, scale)
    steps = jnp.where(left == 0, 0, growth_interval - left)
    return (
        jnp.where(grads_finite, grown, jnp.maximum(scale * (1 / factor), minimum)),
        jnp.where(grads_finite, steps, 0),
    )


@wrong("values")
def scale_counted_in_int16(scale, good_steps, grads_finite, *, growth_interval, **how):
    short = jnp.int16
    new, steps = scale_by_select(
        scale,
        good_steps.astype(short).astype(jnp.int32),
        grads_finite,
        growth_interval=growth_interval % 2**16,
        **how,
    )
    return new, steps.astype(short).astype(jnp.int32)


@wrong("values")
def scale_by_powers_of_two(scale, good_steps, grads_finite, *, factor, **how):
    factor = 2.0 ** max(1, round(factor) // 2)
    return scale_by_select(scale, good_steps, grads_finite, factor=factor, **how)


@wrong("values")
def scale_with_minimum_of_one_at_most(scale, good_steps, grads_finite, *, minimum, **how):
    return scale_by_select(scale, good_steps, grads_finite, minimum=min(minimum, 1.0), **how)


@wrong("values")
def scale_never_grows_at_once(scale, good_steps, grads_finite, *, growth_interval, **how):
    """Takes a count of 0 for a step that cannot be the last one."""
    interval = max(growth_interval, 2)
    return scale_by_select(scale, good_steps, grads_finite, growth_interval=interval, **how)


@wrong("values")
def scale_of_a_short_run(scale, good_steps, grads_finite, *, growth_interval, **how):
    new, steps = scale_by_select(
        scale, good_steps, grads_finite, growth_interval=min(growth_interval, 2000), **how
    )
    return new, steps
