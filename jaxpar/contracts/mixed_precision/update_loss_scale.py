"""Dynamic loss scaling: the next scale of the loss, after an overflow or without one."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.parallel import precision
from jaxpar.parallel.precision import update_loss_scale


def _next_scale(case: Case, scale: Array, good_steps: Array, grads_finite: Array) -> list[Expected]:
    """Each argument differs along one axis of the mesh, in their order."""
    how = case.kwargs
    finite = grads_finite.reshape(-1, 1, 1)
    count = good_steps.reshape(1, -1, 1) + 1
    old = scale.reshape(1, 1, -1)
    grows = count == how["growth_interval"]
    raised = jnp.where(grows, old * how["factor"], old)
    lowered = jnp.maximum(old / how["factor"], how["minimum"])
    counted = jnp.where(grows | ~finite, 0, count)
    sizes = tuple(case.sizes.values())
    return [
        Expected(jnp.where(finite, raised, lowered)),
        Expected(jnp.broadcast_to(counted, sizes)),
    ]


def _scales(
    mesh: str, every: int, spread: int, *, growth_interval: int, factor: float, minimum: float
) -> Case:
    """Along three axes: an overflow or none, growth or none, a scale low or high.

    Args:
        mesh: the three axes.
        every: numbers on each device, of which only the first counts: so the first that a mask has
            on the first device is true, and that on the second of two is not.
        spread: from how many numbers the steps are drawn where the scale does not grow.
        growth_interval: of the call.
        factor: of the call.
        minimum: of the call.
    """
    overflow, growth, low = (
        ArraySpec((size * every,), f"b_{axis}", "bool", "padded")
        for axis, size in parse_mesh(mesh).items()
    )
    drawn_steps = ArraySpec(growth.shape, growth.layout, "int32")
    drawn_scale = ArraySpec(low.shape, low.layout, draw="positive")
    module = "jaxpar.contracts.small_losses"
    return Case(
        mesh,
        {
            "scale": Made(Function(f"{module}:drawn_scale"), (low, drawn_scale, every, minimum)),
            "good_steps": Made(
                Function("jaxpar.contracts.mixed_precision.common:steps_from_zero"),
                (growth, drawn_steps, every, growth_interval, spread),
            ),
            "grads_finite": Made(Function(f"{module}:drawn_flag"), (overflow, every)),
        },
        {"growth_interval": growth_interval, "factor": factor, "minimum": minimum},
    )


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    one, two, three = axis_names(rng, 3, besides=("dp", "cp", "tp", "pp", "fsdp"))
    # A run so long that float32 cannot tell the last step before a growth from the one before it.
    interval, factor = 2**25 + 4 * pick(rng, range(1000)) + 1, pick(rng, (3.0, 8.0, 16.0))
    long = {"growth_interval": interval, "factor": factor, "minimum": pick(rng, (0.25, 2.0, 3.0))}
    always = {"growth_interval": 1, "factor": pick(rng, (1.5, 2.5)), "minimum": 2.0**14}
    return (
        _scales(mesh_of(rng, **{one: 3, two: 2, three: 2}), pick(rng, (5, 7)), 1, **long),
        _scales(f"{one}=2,{two}=1,{three}=2", 8, 3, **always),
    )


CONTRACT = Contract(
    kind="program",
    task="return the next scale, and the steps without overflow that count for its growth",
    reference=precision.update_loss_scale,
    oracle=_next_scale,
    cases=(
        _scales("dp=2,cp=2,tp=2", 6, 1, growth_interval=5, factor=2.0, minimum=1.0),
        _scales("pp=2,fsdp=2,tp=2", 4, 8, growth_interval=9, factor=4.0, minimum=0.5),
    ),
    draw=_drawn,
    communication=Communication("nothing is sent", forward=((),)),
    hints=(
        "There are three outcomes: an overflow, a step without one, and the step without one that "
        "is the last of growth_interval. Which it is, the program knows only when it runs.",
        "jnp.where(condition, a, b) chooses between two results. Compare good_steps + 1 with "
        "growth_interval.",
        "jnp.maximum(scale / factor, minimum) after an overflow; and the count is 0 after an "
        "overflow as after a growth.",
    ),
    minimal="Every device has all that decides the next scale, so nothing has to be sent.",
    harder="Let the first overflow pass, and lower the scale at the next (hysteresis).",
)


Scaled = tuple[Array, Array]  # the next scale, and the steps that count for its growth


@wrong("values")
def no_reset_after_growth(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    """Your count goes on after a growth; start it at 0 again, or the scale never grows a second
    time."""
    new, _ = update_loss_scale(scale, good_steps, finite, **how)
    return new, jnp.where(finite, good_steps + 1, 0)


@wrong("values")
def no_reset_after_overflow(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    """The count survives an overflow; it must be 0, so that growth_interval steps without one come
    before the next growth."""
    new, counted = update_loss_scale(scale, good_steps, finite, **how)
    return new, jnp.where(finite, counted, good_steps)


@wrong("values")
def counts_overflows(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    """A step that overflowed is counted like the others; the count must be 0 after it."""
    new, _ = update_loss_scale(scale, good_steps, finite, **how)
    return new, (good_steps + 1) % how["growth_interval"]


@wrong("values")
def grows_a_step_late(
    scale: Array, good_steps: Array, finite: Array, *, growth_interval: int, **how: Any
) -> Scaled:
    """The scale grows one step late: this step counts, too, so compare good_steps + 1 with
    growth_interval."""
    later = growth_interval + 1
    return update_loss_scale(scale, good_steps, finite, growth_interval=later, **how)


@wrong("values")
def grows_from_a_step_early(
    scale: Array, good_steps: Array, finite: Array, *, growth_interval: int, **how: Any
) -> Scaled:
    """The scale grows one step early: good_steps + 1 must have reached growth_interval."""
    return update_loss_scale(scale, good_steps, finite, growth_interval=growth_interval - 1, **how)


@wrong("values")
def grows_every_step(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    """The scale grows after every step without overflow; it may grow only after growth_interval
    such steps in a row."""
    new, counted = update_loss_scale(scale, good_steps, finite, **how)
    return jnp.where(finite, scale * how["factor"], new), counted


@wrong("values")
def counts_in_float32(
    scale: Array, good_steps: Array, finite: Array, *, growth_interval: int, **how: Any
) -> Scaled:
    """Steps are counted in a float, which cannot tell large numbers apart, so that the scale grows
    too early in a long run; count in integers."""
    count = good_steps.astype(jnp.float32) + 1
    grows = count >= jnp.float32(growth_interval)
    steps = jnp.where(grows, growth_interval - 1, 0).astype(good_steps.dtype)
    new, _ = update_loss_scale(scale, steps, finite, growth_interval=growth_interval, **how)
    return new, jnp.where(finite & ~grows, count, 0).astype(good_steps.dtype)


@wrong("values")
def never_grows(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    """The scale never grows; after growth_interval steps without overflow it is multiplied by
    factor."""
    new, counted = update_loss_scale(scale, good_steps, finite, **how)
    return jnp.where(finite, scale, new), counted


@wrong("values")
def below_the_minimum(
    scale: Array, good_steps: Array, finite: Array, *, minimum: float, **how: Any
) -> Scaled:
    """The scale falls below minimum; take the larger of the two."""
    return update_loss_scale(scale, good_steps, finite, minimum=0.0, **how)


@wrong("values")
def minimum_as_maximum(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    """After an overflow the scale is at most minimum; it must be at least minimum."""
    new, counted = update_loss_scale(scale, good_steps, finite, **how)
    return jnp.where(finite, new, jnp.minimum(scale / how["factor"], how["minimum"])), counted


@wrong("values")
def flag_turned_round(scale: Array, good_steps: Array, finite: Array, **how: Any) -> Scaled:
    """An overflow is taken for a good step, and a good step for an overflow: `grads_finite` is true
    where all is well."""
    return update_loss_scale(scale, good_steps, ~finite, **how)


@wrong("values")
def factor_of_two(
    scale: Array, good_steps: Array, finite: Array, *, factor: float, **how: Any
) -> Scaled:
    """You always change the scale by a factor of 2; use `factor`."""
    return update_loss_scale(scale, good_steps, finite, factor=2.0, **how)
