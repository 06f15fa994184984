"""The gradients of a decoder whose layers are split over pp, by the recipe's schedule."""

from dataclasses import replace
from typing import Any

from jax import Array
from jaxtyping import PyTree

from jaxpar.collectives.leaves import STACKED, LeafLayouts, fetch, scatter_gradients
from jaxpar.model import Settings, pieces
from jaxpar.parallel.fsdp import gathered_layer
from jaxpar.parallel.pipeline import pipeline_gradients
from jaxpar.parallel.remat import checkpointed
from jaxpar.schedules import Table
from jaxpar.schedules.ticks import lower
from jaxpar.train.gradients import FindLocal, LossAndGradients
from jaxpar.train.recipe import Recipe


def by_schedule(
    settings: Settings, recipe: Recipe, table: Table, layouts: PyTree[LeafLayouts]
) -> FindLocal:
    """Finds a device's parts of the gradients, by running a schedule of microbatches.

    Where the recipe gathers layers, parameters and gradients are as at rest and as owned, and each
    layer is gathered for each microbatch; the ends are gathered once.
    """
    # A schedule adds up what its microbatches give, with the mean in the loss of each.
    split = replace(recipe.split, added=recipe.microbatches)
    by_shards = recipe.gathers_layers
    decoder = pieces(settings, split)
    layer = gathered_layer(decoder.layer, layouts[STACKED]) if by_shards else decoder.layer
    of_ends = {name: part for name, part in layouts.items() if name != STACKED}

    def first(ends: Any, tokens: Array) -> Array:
        return decoder.first(ends, split.own_tokens(tokens[:, :-1]))

    def last(ends: Any, y: Array, tokens: Array) -> Array:
        targets = split.own_tokens(tokens[:, 1:])
        return split.cross_entropy(decoder.last(ends, y), targets).mean()

    def find(params: Any, tokens: Array, scale: Any) -> LossAndGradients:
        ends = {name: params[name] for name in of_ends}
        loss, (ends, layers) = pipeline_gradients(
            first,
            checkpointed(layer, recipe.layout.remat),
            last,
            (fetch(ends, of_ends) if by_shards else ends, params[STACKED]),
            tokens.reshape(recipe.microbatches, -1, *tokens.shape[1:]),
            table,
            keep_inputs=recipe.keeps_inputs,
            axis="pp",
            scale=scale,
        )
        ends = scatter_gradients(ends, of_ends) if by_shards else ends
        return loss, ends | {STACKED: layers}

    return find


def schedule_notes(recipe: Recipe) -> tuple[str, ...]:
    """Notes on the schedule for the report of a step, which cannot know them."""
    if not recipe.table:
        return ()
    lowered = lower(recipe.table, keep_inputs=recipe.keeps_inputs)
    ticks = len(lowered.ticks.kind)
    return (
        f"schedule {recipe.schedule}: {ticks} ticks, with a permute each way; of what "
        f"arrives at a device, at most {lowered.transfers} of {2 * ticks} arrays are needed there",
        f"flops count an action of every kind in each of the {ticks} ticks; a device does "
        f"{max(sum(map(bool, row)) for row in recipe.table.rows)} actions in all",
    )
