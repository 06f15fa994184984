"""The loss of a decoder whose layers lie on different devices, which comes with its gradient."""

from typing import Any

import jax
from jax import Array

from jaxpar.model import Settings, pieces
from jaxpar.parallel.pipeline import pipeline_gradients
from jaxpar.parallel.remat import checkpointed
from jaxpar.schedules import Table
from jaxpar.schedules.ticks import lower
from jaxpar.train.plan import DEFAULT, PIPELINE_AXIS, Plan
from jaxpar.train.step import Loss

RECOMPUTED = ("full", "segments")


def pipeline_loss(settings: Settings, plan: Plan, table: Table) -> Loss:
    """The mean loss of this device's examples, by the plan's schedule.

    The gradient is computed with the loss, as the schedule says; who asks for it gets it.
    """
    decoder = pieces(settings, plan.split)
    remat = "full" if plan.remat in RECOMPUTED else plan.remat

    def last(ends: Any, y: Array, tokens: Array) -> Array:
        return plan.split.cross_entropy(decoder.last(ends, y), tokens[:, 1:]).mean()

    def both(params: Any, tokens: Array) -> tuple[Array, Any]:
        ends = {name: part for name, part in params.items() if name != "layers"}
        loss, (ends, layers) = pipeline_gradients(
            lambda ends, tokens: decoder.first(ends, tokens[:, :-1]),
            checkpointed(decoder.layer, remat),
            last,
            (ends, params["layers"]),
            tokens.reshape(plan.microbatches, -1, *tokens.shape[1:]),
            table,
            keep_inputs=plan.remat in RECOMPUTED,
            axis=PIPELINE_AXIS,
        )
        return loss, ends | {"layers": layers}

    @jax.custom_vjp
    def loss(params: Any, tokens: Array) -> Array:
        return both(params, tokens)[0]

    def pull(gradients: Any, scale: Array) -> tuple[Any, None]:
        return jax.tree.map(lambda leaf: (leaf * scale).astype(leaf.dtype), gradients), None

    loss.defvjp(both, pull)
    return loss


def schedule_notes(plan: Plan) -> tuple[str, ...]:
    """What the report of a step does not tell of its schedule."""
    if not plan.table:
        return ()
    lowered = lower(plan.table, keep_inputs=plan.remat in RECOMPUTED)
    ticks = len(lowered.ticks.kind)
    return (
        f"schedule {plan.schedule or DEFAULT}: {ticks} ticks, with a permute each way; of what "
        f"arrives at a device, at most {lowered.transfers} of {2 * ticks} arrays are needed there",
        f"flops count an action of every kind in each of the {ticks} ticks; a device does "
        f"{max(sum(map(bool, row)) for row in plan.table.rows)} actions in all",
    )
