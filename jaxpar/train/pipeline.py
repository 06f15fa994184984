"""The loss of a decoder whose layers are split over pp; it comes with its gradient."""

from typing import Any

import jax
from jax import Array

from jaxpar.model import Settings, pieces
from jaxpar.parallel.pipeline import pipeline_gradients
from jaxpar.parallel.remat import checkpointed
from jaxpar.schedules import Table
from jaxpar.schedules.ticks import lower
from jaxpar.train.recipe import Recipe
from jaxpar.train.step import Loss


def pipeline_loss(settings: Settings, recipe: Recipe, table: Table) -> Loss:
    """The mean loss of this device's examples, computed by the recipe's schedule.

    The schedule computes the gradient together with the loss, whether or not it is asked for.
    """
    layout, split = recipe.layout, recipe.split
    decoder = pieces(settings, split)
    remat = "full" if layout.recomputes_layers else layout.remat

    def last(ends: Any, y: Array, tokens: Array) -> Array:
        return split.cross_entropy(decoder.last(ends, y), tokens[:, 1:]).mean()

    def both(params: Any, tokens: Array) -> tuple[Array, Any]:
        ends = {name: part for name, part in params.items() if name != "layers"}
        loss, (ends, layers) = pipeline_gradients(
            lambda ends, tokens: decoder.first(ends, tokens[:, :-1]),
            checkpointed(decoder.layer, remat),
            last,
            (ends, params["layers"]),
            tokens.reshape(recipe.microbatches, -1, *tokens.shape[1:]),
            table,
            keep_inputs=layout.recomputes_layers,
            axis="pp",
        )
        return loss, ends | {"layers": layers}

    @jax.custom_vjp
    def loss(params: Any, tokens: Array) -> Array:
        return both(params, tokens)[0]

    def pull(gradients: Any, scale: Array) -> tuple[Any, None]:
        return jax.tree.map(lambda leaf: (leaf * scale).astype(leaf.dtype), gradients), None

    loss.defvjp(both, pull)
    return loss


def schedule_notes(recipe: Recipe) -> tuple[str, ...]:
    """Notes on the schedule for the report of a step, which cannot know them."""
    if not recipe.table:
        return ()
    lowered = lower(recipe.table, keep_inputs=recipe.layout.recomputes_layers)
    ticks = len(lowered.ticks.kind)
    return (
        f"schedule {recipe.schedule}: {ticks} ticks, with a permute each way; of what "
        f"arrives at a device, at most {lowered.transfers} of {2 * ticks} arrays are needed there",
        f"flops count an action of every kind in each of the {ticks} ticks; a device does "
        f"{max(sum(map(bool, row)) for row in recipe.table.rows)} actions in all",
    )
