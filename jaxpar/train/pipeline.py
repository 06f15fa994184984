"""The gradients of a decoder whose layers are split over pp, by the recipe's schedule."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jax import Array, lax
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
from jaxpar.train.trained import frozen, replaced, trained


def by_schedule(
    settings: Settings,
    recipe: Recipe,
    table: Table,
    layouts: PyTree[LeafLayouts],
    *,
    learns: bool = True,
) -> FindLocal:
    """Finds a device's parts of the gradients, by running a schedule of microbatches.

    Where the recipe gathers layers, parameters and gradients are as at rest and as owned, and each
    layer is gathered for each microbatch; the ends are gathered once.

    Without `learns`, only the loss is of use: a schedule finds it in its backward passes, which
    then compute nothing else.
    """
    # A schedule adds up what its microbatches give, with the mean in the loss of each.
    split = replace(recipe.split, added=recipe.microbatches)
    by_shards = recipe.gathers_layers
    decoder = pieces(settings, split)
    layer = gathered_layer(decoder.layer, layouts[STACKED]) if by_shards else decoder.layer
    layer = checkpointed(layer, recipe.layout.remat)
    of_ends, of_trained_ends = _ends(layouts), _ends(trained(layouts))

    def find(params: Any, tokens: Array, scale: Any) -> LossAndGradients:
        ends = fetch(_ends(params), of_ends) if by_shards else _ends(params)

        def first(new: Any, tokens: Array) -> Array:
            return decoder.first(replaced(ends, new), split.own_tokens(tokens[:, :-1]))

        def apply(new: Any, x: Array, base: Any) -> Array:
            return layer(replaced(base, new), x)

        def last(new: Any, y: Array, tokens: Array) -> Array:
            targets = split.own_tokens(tokens[:, 1:])
            return split.cross_entropy(decoder.last(replaced(ends, new), y), targets).mean()

        loss, (of_new, layers) = pipeline_gradients(
            first,
            apply if learns else _without_gradient(apply),
            last if learns else _without_gradient(last),
            ({name: ends[name] for name in of_trained_ends}, trained(params[STACKED])),
            tokens.reshape(recipe.microbatches, -1, *tokens.shape[1:]),
            table,
            keep_inputs=recipe.keeps_inputs,
            axis="pp",
            scale=scale,
            frozen=(frozen(params[STACKED]),),
        )
        of_new = scatter_gradients(of_new, of_trained_ends) if by_shards else of_new
        return loss, of_new | {STACKED: layers}

    return find


def _ends(params: Any) -> dict[str, Any]:
    """All but the layers, of parameters or of what there is for each of them."""
    return {name: part for name, part in params.items() if name != STACKED}


def _without_gradient(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function, of which all gradients are zero, so that none is computed."""
    return lambda *args: lax.stop_gradient(function(*args))


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
