"""What the steps of the library send where they differ from `step_traffic`, and why."""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.tree_util import keystr, tree_leaves_with_path

from jaxpar.cost.shards import outer_parameters
from jaxpar.cost.traffic import Message, step_traffic
from jaxpar.cost.zero import ADAM_FP32, ADAM_MIXED
from jaxpar.inspector.stablehlo import read_module
from jaxpar.layout import Layout
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init
from jaxpar.parallel.precision import POLICIES
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
    formula, arrays = message.operand.formula, None
    if "parameters" in formula:
        arrays = len(parameters(settings, formula.partition("_")[0]))
    size, times = float(message.operand_bytes), float(message.times)
    return Entry(message.kind, message.axes, size, times, arrays)


@cache
def parameters(settings: Settings, which: str) -> list[str]:
    """Names of parameters: of a "layer", "outer", "table", "key" (and value), "whole" over tp."""
    tree = jax.eval_shape(lambda: init(settings, jax.random.key(0)))
    names = [keystr(path, simple=True, separator="/") for path, _ in tree_leaves_with_path(tree)]
    belongs = {
        "layer": lambda name: name.startswith("layers"),
        "outer": lambda name: not name.startswith("layers"),
        "table": lambda name: name == "embedding",
        "key": lambda name: name.endswith(("key", "value")),
        "whole": lambda name: "norm" in name or "positions" in name,
    }
    return [name for name in names if belongs[which](name)]


def expected(recipe: Recipe, settings: Settings) -> list[Message]:
    return step_traffic(
        architecture_of(settings),
        recipe.layout,
        batch=recipe.batch,
        sequence=settings.sequence,
        each=ADAM_FP32 if recipe.precision == "fp32" else ADAM_MIXED,
        element_bytes=element_bytes(recipe),
        scatter_gather=False,
    )


def ours(recipe: Recipe, settings: Settings) -> Iterator[Entry]:
    """The entries of our program where they differ from those of `step_traffic`."""
    backwards, ticks = 1, 0
    if recipe.table:
        # A schedule may have whole and halved backward passes: a branch for each.
        kinds = {action.kind for row in recipe.table.rows for action in row if action}
        backwards = len(kinds & set("BI"))
        ticks = len(lower(recipe.table, keep_inputs=recipe.layout.recomputes_layers).ticks.kind)
    for message in expected(recipe, settings):
        forward, backward = passes(message.name, recipe)
        one = entry(message, settings)
        once = one.times / message.count.numbers.get("runs", 1)
        if one.arrays is None or "again" in message.name:
            one = one._replace(times=once * (forward + backward * backwards))
        one = summed_at_once(message, recipe, settings, one)
        yield in_ticks(message, recipe, settings, one, ticks) if recipe.table else one
    if recipe.table:
        arrays = len(parameters(settings, "outer"))
        yield Entry("all_reduce", ("pp",), outer_bytes(recipe, settings), 1, arrays)


def passes(name: str, recipe: Recipe) -> tuple[float, float]:
    """How often a message is sent in the forward and the backward pass, with our recomputation.

    The last sum of a layer is not recomputed, because no gradient needs it. What the recomputation
    gathers is kept until the gradient is computed. Segments, and stages that keep their input, run
    forward once more for the input of each layer. What the forward pass gathers outside of the
    layers is kept.
    """
    again = recipe.layout.recomputes_layers
    nested = recipe.layout.remat == "segments" or (again and recipe.table is not None)
    match name:
        case "layer inputs":
            return 1, again + nested
        case "layer outputs":
            return 1, again / 2 + nested
        case "embedding":
            return 1, nested and recipe.table is not None
        case "layer inputs again" | "head input again":
            return 0, not again
        case "parameters again":
            return 0, 1 + nested
        case "outer parameters again":
            return 0, 0
    return 0, 1


def summed_at_once(message: Message, recipe: Recipe, settings: Settings, one: Entry) -> Entry:
    """Over tp, JAX sums gradients where it differentiates: for each microbatch, not at the end.

    The last norm computes in float32, and its gradients may be summed in float32. Where several
    devices use the same heads of keys and values, each holds these matrices in full.
    """
    match message.name:
        case "gradients of whole parameters":
            vectors = 1 if settings.norm == "rms" else 2
            extra = (norm_bytes(recipe) - element_bytes(recipe)) * vectors * settings.d_model
            return one._replace(times=recipe.microbatches, operand_bytes=one.operand_bytes + extra)
        case "gradients of shared heads":
            apart = 1 if recipe.layout.sequence_parallel else settings.layers
            size = one.operand_bytes * settings.key_heads / apart
            return one._replace(times=recipe.microbatches * apart, operand_bytes=size)
        case "gradients" if recipe.layout.tp > settings.key_heads:
            keys = 2 * settings.layers * settings.d_model * settings.d_head
            extra = (settings.key_heads - 1) * keys * element_bytes(recipe)
            return one._replace(operand_bytes=one.operand_bytes + extra)
    return one


def in_ticks(message: Message, recipe: Recipe, settings: Settings, one: Entry, ticks: int) -> Entry:
    """All stages run one program, a loop over ticks, in which each branch counts in each tick.

    In every tick an array is sent each way, whether it is needed or not. Each device has the
    parameters outside of the layers, whose gradients are summed over pp, a tied table's among them.
    """
    assert recipe.table
    if message.kind == "permute":
        return one._replace(times=0 if one.arrays else ticks)
    if message.name == "outer gradients":
        return one._replace(operand_bytes=outer_bytes(recipe, settings))
    if message.name == "gradients of whole parameters":
        # Two norms in each layer of a chunk, and the last one.
        norms = 2 * settings.layers // recipe.table.stages + 1
        size = norms * settings.d_model * norm_bytes(recipe)
        return one._replace(times=ticks, operand_bytes=size, arrays=norms)
    if one.arrays is None:
        chunks = recipe.table.chunks if message.stage == "all" else 1
        return one._replace(times=one.times * ticks / (recipe.microbatches * chunks))
    return one


def element_bytes(recipe: Recipe) -> int:
    return 4 if recipe.precision == "fp32" else 2


@cache
def norm_bytes(recipe: Recipe) -> int:
    """Bytes of an element when JAX sums the gradients of a norm, which computes in float32.

    In jax 0.10 gradients are summed before they are rounded to 16 bits, and in 0.12 after that.
    """
    like = jax.ShapeDtypeStruct((1,), POLICIES[recipe.precision].params)
    gradient = jax.grad(lambda w, x: (w * x).sum())
    specs = {"in_specs": (P(), P("tp")), "out_specs": P()}
    step = jax.jit(jax.shard_map(gradient, mesh=make_mesh("tp=2"), **specs))
    lowered = step.lower(like, jax.ShapeDtypeStruct((2,), jnp.float32))
    (one,) = read_module(lowered.compiler_ir("stablehlo"))
    return one.operand_bytes


def outer_bytes(recipe: Recipe, settings: Settings) -> float:
    """Bytes outside of the layers, on each device."""
    held = outer_parameters(architecture_of(settings), Layout(tp=recipe.layout.tp))
    return float(held) * element_bytes(recipe)
