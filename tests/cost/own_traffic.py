"""What the steps of the library send where they differ from `step_traffic`, and why."""

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import jax
from jax.tree_util import keystr, tree_leaves_with_path

from jaxpar.cost.traffic import Message, step_traffic
from jaxpar.cost.zero import ADAM_FP32, ADAM_MIXED
from jaxpar.layout import AXES
from jaxpar.model import Settings, init
from jaxpar.schedules.ticks import lower
from jaxpar.train.recipe import Recipe
from tests.cost.decoders import architecture_of


class Entry(NamedTuple):
    """What a program sends of a message; `arrays` is set where it consists of many arrays."""

    kind: str
    axes: tuple[str, ...]
    operand_bytes: float
    times: float
    arrays: int | None


def entry(message: Message, settings: Settings) -> Entry:
    """The entry of a message of `step_traffic`; parameters and gradients go array by array."""
    names = parameters_of(message, settings)
    size, times = float(message.operand_bytes), float(message.times)
    return Entry(message.kind, message.axes, size, times, len(names) or None)


def parameters_of(message: Message, settings: Settings) -> list[str]:
    """The names of the parameters that a message is about."""
    formula = message.operand.formula
    return parameters(settings, formula.partition("_")[0]) if "parameters" in formula else []


def parameters(settings: Settings, which: str) -> list[str]:
    """Names of parameters: of a "layer", "outer", "table", "key" (and value), "whole" over tp."""
    belongs = {
        "layer": lambda name: name.startswith("layers"),
        "outer": lambda name: not name.startswith("layers"),
        "table": lambda name: name == "embedding",
        "key": lambda name: name.endswith(("key", "value")),
        "whole": lambda name: "norm" in name or "positions" in name,
    }
    return [name for name in shapes(settings) if belongs[which](name)]


@cache
def shapes(settings: Settings) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter; those of layers are stacked."""
    tree = jax.eval_shape(lambda: init(settings, jax.random.key(0)))
    leaves = tree_leaves_with_path(tree)
    return {keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves}


def expected(recipe: Recipe, settings: Settings) -> list[Message]:
    """What `step_traffic` says of a step; keys and values are gathered over cp."""
    return step_traffic(
        architecture_of(settings),
        recipe.layout,
        batch=recipe.batch,
        sequence=settings.sequence,
        each=ADAM_FP32 if recipe.precision == "fp32" else ADAM_MIXED,
        element_bytes=element_bytes(recipe),
        context="gather",
        scatter_gather=False,
    )


def ours(recipe: Recipe, settings: Settings) -> Iterator[Entry]:
    """The entries of our program where they differ from those of `step_traffic`."""
    for message in expected(recipe, settings):
        one = entry(message, settings)
        if one.arrays is None:
            yield of_activations(message, recipe, one)
        elif one.kind in ("all_gather", "reduce_scatter"):
            yield from of_shards(message, recipe, settings, one)
        elif is_summed_by_jax(message, recipe):
            yield of_shared_heads(message, recipe, settings, one)
    yield from summed_once(recipe, settings)


def of_activations(message: Message, recipe: Recipe, one: Entry) -> Entry:
    """What layers, embedding, head and loss send, with our recomputation, and in every tick.

    Keys and values are gathered apart.
    """
    if "keys and values" in message.name:
        one = one._replace(operand_bytes=one.operand_bytes / 2, times=2 * one.times)
    # The formula counts keys and values of the backward pass as well.
    counted = 2 if message.name == "keys and values" else message.count.numbers.get("runs", 1)
    forward, backward = passes(message.name, recipe)
    times = one.times / counted * (forward + backward * backwards(recipe))
    return one._replace(times=times * ticks_for_one(message, recipe))


def of_shards(message: Message, recipe: Recipe, settings: Settings, one: Entry) -> Iterator[Entry]:
    """What ZeRO gathers and scatters, each array as large as a device has it.

    With `gather` "step", stage 3 gathers everything once a step, and keeps it; so it scatters
    once, too. Otherwise a pipeline does this with the parameters outside of the layers alone.
    """
    outer, pieces, times = message.name.startswith(("outer", "new outer")), 1, one.times
    if recipe.layout.zero == 3 and (not recipe.gathers_layers or (outer and recipe.table)):
        times = "again" not in message.name
    elif recipe.layout.zero == 3:
        pieces = 1 if outer else message.count.numbers["layers"]
        forward, backward = passes(message.name, recipe)
        times *= (forward + backward * backwards(recipe)) * ticks_for_one(message, recipe)
    for name in parameters_of(message, settings):
        if axes := shared_by(name, recipe, settings):
            size = held_bytes(name, recipe, settings) / pieces
            size /= devices(axes, recipe) if one.kind == "all_gather" else 1
            yield Entry(one.kind, axes, size, times, 1)


def passes(name: str, recipe: Recipe) -> tuple[float, float]:
    """How often a message is sent in the forward and the backward pass, with our recomputation.

    The last sum of a layer is not recomputed, because no gradient needs it. What the recomputation
    gathers is kept until the gradient is computed. Segments run forward once more for the input of
    each layer; those of a pipeline are its stages, and the first computes its own input, too. What
    the forward pass gathers outside of the layers is kept. Gathered keys and values are kept if
    everything is. A pipeline computes the loss in the backward pass.
    """
    again, nested = recipe.layout.recomputes_layers, recipe.layout.remat == "segments"
    match name:
        case "layer inputs":
            return 1, again + nested
        case "layer outputs":
            return 1, again / 2 + nested
        case "embedding":
            return 1, nested and recipe.table is not None
        case "layer inputs again" | "head input again":
            return 0, not again
        case "keys and values":
            return 1, (recipe.layout.remat != "none") + nested
        case "parameters" | "outer parameters" | "stage outputs" | "gradients of stage inputs":
            return 1, 0
        case "parameters again":
            return 0, 1 + nested
        case "outer parameters again":
            return 0, 0
    return 0, 1


def backwards(recipe: Recipe) -> int:
    """How many branches of a program have a backward pass: one if it is whole, one if halved.

    Both halves together send what a whole one sends.
    """
    if not recipe.table:
        return 1
    return len({action.kind for row in recipe.table.rows for action in row if action} & set("BI"))


def ticks_for_one(message: Message, recipe: Recipe) -> float:
    """How many ticks of a pipeline there are for each microbatch of a chunk.

    All stages run one program, a loop over ticks, in which each branch counts in each tick. In
    every tick an array is sent each way, whether it is needed or not.
    """
    if not recipe.table:
        return 1
    ticks = len(lower(recipe.table, keep_inputs=recipe.layout.remat == "segments").ticks.kind)
    return ticks / (recipe.microbatches * (recipe.table.chunks if message.stage == "all" else 1))


def summed_once(recipe: Recipe, settings: Settings) -> Iterator[Entry]:
    """The gradients that are summed at the end of a step, over all axes together.

    The standard way sums some of them twice: what devices of tp have in full, which it sums before
    ZeRO scatters it; we sum shards. Each stage of a pipeline has all that is outside of the layers,
    whose gradients are summed over pp, those of a tied table among them. What not all devices
    shard is also summed over those that do not.
    """
    axes: dict[str, set[str]] = defaultdict(set)
    for message in expected(recipe, settings):
        if message.kind == "all_reduce" and not is_summed_by_jax(message, recipe):
            for name in parameters_of(message, settings):
                axes[name].update(message.axes)
    if recipe.table:
        for name in parameters(settings, "outer"):
            axes[name].add("pp")
    for name in shapes(settings):
        shared = shared_by(name, recipe, settings)
        over = axes[name] | set(recipe.layout.token_axes) - set(shared)
        size = held_bytes(name, recipe, settings) / devices(shared, recipe)
        if over:
            in_mesh_order = tuple(axis for axis in AXES if axis in over)
            yield Entry("all_reduce", in_mesh_order, size, 1, 1)


def shared_by(name: str, recipe: Recipe, settings: Settings) -> tuple[str, ...]:
    """The axes over which ZeRO shards a parameter; nothing is padded.

    If all devices that could share it divide none of its dims, the inner axes do, or none.
    """
    layout, dims = recipe.layout, shapes(settings)[name]
    axes = layout.sharding_axes if layout.zero else ()
    dims = dims[1:] if name in parameters(settings, "layer") else dims
    while axes and all(size % devices(axes, recipe) for size in dims):
        axes = axes[1:]
    return axes


def devices(axes: tuple[str, ...], recipe: Recipe) -> int:
    """How many devices there are along these axes."""
    return math.prod(recipe.layout.sizes[axis] for axis in axes)


def is_summed_by_jax(message: Message, recipe: Recipe) -> bool:
    """Whether JAX sums these gradients where it computes them: those of shared heads.

    Where devices split the positions, too, all that they have in full is summed once.
    """
    return message.name == "gradients of shared heads" and not recipe.layout.sequence_parallel


def of_shared_heads(message: Message, recipe: Recipe, settings: Settings, one: Entry) -> Entry:
    """The matrices of heads that several devices use, summed in each layer of each microbatch."""
    layers = settings.layers / recipe.layout.pp
    names = parameters_of(message, settings)
    size = sum(held_bytes(name, recipe, settings) for name in names) / layers
    times = recipe.microbatches * layers * backwards(recipe) * ticks_for_one(message, recipe)
    return one._replace(operand_bytes=size, times=times)


def held_bytes(name: str, recipe: Recipe, settings: Settings) -> float:
    """Bytes of a parameter on a device, while it is used.

    Where several devices use the same heads of keys and values, each has these matrices in full.
    Each stage of a pipeline has all that is outside of the layers.
    """
    layout = recipe.layout
    whole = name in parameters(settings, "whole") or (
        layout.tp > settings.key_heads and name in parameters(settings, "key")
    )
    stages = layout.pp if name in parameters(settings, "layer") else 1
    parts = stages * (1 if whole else layout.tp)
    return math.prod(shapes(settings)[name]) / parts * element_bytes(recipe)


def element_bytes(recipe: Recipe) -> int:
    return 4 if recipe.precision == "fp32" else 2
