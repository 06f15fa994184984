"""Contracts of lesson 07: mixed precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxpar.contracts import precision_mistakes as mistakes
from jaxpar.contracts.base import Communication, Contract, Expected, FlopsLimit
from jaxpar.contracts.case import Array, Case, Function, Made
from jaxpar.parallel import precision


def _next_scale(
    case: Case, scale: jax.Array, good_steps: jax.Array, grads_finite: jax.Array
) -> list[Expected]:
    """Each argument differs along one axis of the mesh, in their order."""
    how = case.kwargs
    finite = grads_finite[:, None, None]
    count = good_steps[None, :, None] + 1
    old = scale[None, None, :]
    grows = count == how["growth_interval"]
    raised = jnp.where(grows, old * how["factor"], old)
    lowered = jnp.maximum(old / how["factor"], how["minimum"])
    counted = jnp.where(grows | ~finite, 0, count)
    sizes = tuple(case.sizes.values())
    return [
        Expected(jnp.where(finite, raised, lowered)),
        Expected(jnp.broadcast_to(counted, sizes)),
    ]


def _stepped(
    case: Case,
    loss_fn: Callable,
    master: Any,
    opt_state: Any,
    batch: Any,
    optimizer: optax.GradientTransformation,
) -> list[Expected]:
    """One step on each device by itself, none where the batch says that it overflows."""
    sizes = case.sizes.values()
    n = math.prod(sizes)

    def step(master: Any, opt_state: Any, batch: Any) -> Any:
        rare = _rare(batch).any()
        updates, state = optimizer.update(jax.grad(loss_fn)(master, batch), opt_state, master)
        new = (optax.apply_updates(master, updates), state)
        kept = jax.tree.map(lambda a, b: jnp.where(rare, a, b), (master, opt_state), new)
        return kept, ~rare

    def parts(leaf: jax.Array) -> jax.Array:
        return jnp.broadcast_to(leaf, n) if leaf.ndim == 0 else leaf.reshape(n, -1, *leaf.shape[1:])

    results = jax.vmap(step)(*jax.tree.map(parts, (master, opt_state, batch)))
    return [Expected(leaf.reshape(*sizes, *leaf.shape[1:])) for leaf in jax.tree.leaves(results)]


def _rare(batch: Any) -> jax.Array:
    return batch["rare"] if isinstance(batch, Mapping) else batch[-1]


def _scales(
    mesh: str, every: int, spread: int, *, growth_interval: int, factor: float, minimum: float
) -> Case:
    """Along three axes of two devices: an overflow or none, growth or none, a scale low or high.

    Args:
        mesh: the three axes.
        every: numbers on each device, of which only the first counts: so the first that a mask has
            on the first device is true, and that on the second is not.
        spread: from how many numbers the steps are drawn where the scale does not grow.
        growth_interval: of the call.
        factor: of the call.
        minimum: of the call.
    """
    overflow, growth, low = (
        Array((2 * every,), f"b_{axis.partition('=')[0]}", "bool", "padded")
        for axis in mesh.split(",")
    )
    drawn_steps = Array(growth.shape, growth.layout, "int32")
    drawn_scale = Array(low.shape, low.layout, draw="positive")
    here = "jaxpar.contracts.small_losses"
    return Case(
        mesh,
        {
            "scale": Made(Function(f"{here}:drawn_scale"), (low, drawn_scale, every, minimum)),
            "good_steps": Made(
                Function(f"{here}:drawn_steps"),
                (growth, drawn_steps, every, growth_interval, spread),
            ),
            "grads_finite": Made(Function(f"{here}:drawn_flag"), (overflow, every)),
        },
        {"growth_interval": growth_interval, "factor": factor, "minimum": minimum},
    )


def _matrices(n: int, layout: str, inputs: int, hidden: int, draw: Any = "normal") -> Any:
    """Every device's own parameters of a small network."""
    return {
        "w_in": Array((n * inputs, hidden), f"{layout} f", draw=draw),
        "w_out": Array((n * hidden,), layout, draw=draw),
    }


def _layers(n: int, layout: str) -> Any:
    return [
        {"w": Array((n * 5, 12), f"{layout} f"), "scale": Array((n * 12,), layout)},
        {"w": Array((n * 12, 3), f"{layout} d")},
    ]


UPDATE_LOSS_SCALE = Contract(
    id="update_loss_scale",
    kind="program",
    task="return the next scale, and the steps without overflow that count for its growth",
    reference=precision.update_loss_scale,
    oracle=_next_scale,
    cases=(
        _scales("dp=2,cp=2,tp=2", 6, 1, growth_interval=5, factor=2.0, minimum=1.0),
        _scales("pp=2,fsdp=2,tp=2", 4, 8, growth_interval=9, factor=4.0, minimum=0.5),
    ),
    hidden=(_scales("node=2,device=2,cp=2", 5, 6, growth_interval=7, factor=8.0, minimum=2.0),),
    communication=Communication("nothing is sent", forward=((),)),
    mistakes=mistakes.UPDATE_LOSS_SCALE,
    hints=(
        "There are three outcomes: an overflow, a step without one, and the step without one that "
        "is the last of growth_interval. Which it is, the program knows only when it runs.",
        "jnp.where(condition, a, b) chooses between two results. Compare good_steps + 1 with "
        "growth_interval.",
        "jnp.maximum(scale / factor, minimum) after an overflow; and the count is 0 after an "
        "overflow as after a growth.",
    ),
    minimal="All that decides is on every device: nothing has to be sent.",
    harder="Let the first overflow pass, and lower the scale at the next (hysteresis).",
)

MIXED_PRECISION_STEP = Contract(
    id="mixed_precision_step",
    kind="program",
    task="return new master parameters, new state and whether the gradients were finite",
    reference=precision.mixed_precision_step,
    oracle=_stepped,
    cases=(
        Case(
            "dp=8",
            {
                "loss_fn": Function("jaxpar.contracts.small_losses:overflowing_error"),
                "master": _matrices(8, "d_dp", 6, 16),
                "opt_state": Made(
                    Function("jaxpar.contracts.small_losses:adamw_state"),
                    (
                        Array((), "", "int32"),
                        _matrices(8, "d_dp", 6, 16),
                        _matrices(8, "d_dp", 6, 16, "positive"),
                    ),
                ),
                "batch": {
                    "inputs": Array((8 * 32, 6), "b_dp d"),
                    "targets": Array((8 * 32,), "b_dp"),
                    "rare": Array((8,), "b_dp", "bool", "padded"),
                },
                "optimizer": Function("jaxpar.contracts.small_losses:ADAMW"),
            },
            {"scale": 2.0**30},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "loss_fn": Function("jaxpar.contracts.small_losses:overflowing_layers"),
                "master": _layers(6, "d_fsdp_tp"),
                "opt_state": Made(
                    Function("jaxpar.contracts.small_losses:momentum_state"),
                    (_layers(6, "d_fsdp_tp"),),
                ),
                "batch": (
                    Array((6 * 20, 5), "b_fsdp_tp d"),
                    Array((6 * 20, 3), "b_fsdp_tp d"),
                    Array((6,), "b_fsdp_tp", "bool", "padded"),
                ),
                "optimizer": Function("jaxpar.contracts.small_losses:MOMENTUM"),
            },
            {"scale": 2.0**31},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=2",
            {
                "loss_fn": Function("jaxpar.contracts.small_losses:overflowing_error"),
                "master": _matrices(4, "d_tp_dp", 5, 12),
                "opt_state": Made(
                    Function("jaxpar.contracts.small_losses:momentum_state"),
                    (_matrices(4, "d_tp_dp", 5, 12),),
                ),
                "batch": {
                    "inputs": Array((4 * 24, 5), "b_tp_dp d"),
                    "targets": Array((4 * 24,), "b_tp_dp"),
                    "rare": Array((4,), "b_tp_dp", "bool", "padded"),
                },
                "optimizer": Function("jaxpar.contracts.small_losses:MOMENTUM"),
            },
            {"scale": 2.0**29},
        ),
    ),
    flops=FlopsLimit(
        "each matrix product once, and of float16 values",
        programs=("forward",),
        dtypes=("float16",),
    ),
    mistakes=mistakes.MIXED_PRECISION_STEP,
    hints=(
        "Differentiate by the float16 copy of the parameters, not by the float32 ones; "
        "jax.tree.map makes the copy. The loss that loss_fn returns is float32: scale it there.",
        "The gradients come in float16. Convert them to float32 first, then divide by scale, and "
        "only then let the optimizer have them, with the float32 parameters.",
        "jnp.isfinite(leaf).all() for every leaf. Make the step in any case, and choose with "
        "jnp.where for every leaf of parameters and state: the new or the old.",
    ),
    minimal="Each device has all that it needs. The operands of a float16 product take half the "
    "bytes of float32 ones.",
    harder="Return the loss, too, without a second forward pass and without the scale.",
)

CONTRACTS = (UPDATE_LOSS_SCALE, MIXED_PRECISION_STEP)
