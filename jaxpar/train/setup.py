"""What a recipe needs to begin: the first parameters and state, and the compiled step."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import optax
from jax import Array, lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from jaxpar.collectives.leaves import STACKED, LeafLayouts, leaf_layouts, specs_of
from jaxpar.inspector.compiled import Compiled, compile_program
from jaxpar.inspector.program import inspect_compiled
from jaxpar.inspector.report import Report
from jaxpar.layout import Layout
from jaxpar.mesh import in_mesh_order, varying_axes
from jaxpar.model import Settings, init, loss_fn, used_specs
from jaxpar.model.few_bits import encode
from jaxpar.model.functions import Taught
from jaxpar.parallel.fsdp import fsdp_loss, gather_layers
from jaxpar.parallel.offload import OffloadedState, Store, Transfers
from jaxpar.parallel.pipeline import layer_order
from jaxpar.parallel.precision import POLICIES, LossScaling, cast, master_weights
from jaxpar.parallel.remat import scan_layers
from jaxpar.parallel.zero import state_specs
from jaxpar.train.averaging import averaging, make_published
from jaxpar.train.compression import (
    Compression,
    Group,
    first_kept,
    groups_of,
    kept_specs,
    make_compressed_step,
)
from jaxpar.train.distillation import Teacher, on_devices, taught_by
from jaxpar.train.experts import BIAS_RATE, balanced
from jaxpar.train.gradients import FindLocal, by_microbatches, over_devices
from jaxpar.train.offloading import (
    make_find,
    make_offloaded_step,
    make_update,
    of_part,
    update_collectives,
)
from jaxpar.train.optimizer import check_blocks, make_optimizer
from jaxpar.train.pipeline import by_schedule, schedule_notes
from jaxpar.train.recipe import Recipe
from jaxpar.train.rounds import (
    OUTERS,
    for_each,
    inner_specs,
    make_compressed_round,
    make_round,
)
from jaxpar.train.spikes import skipping
from jaxpar.train.step import WHOLE, Step, Technique, make_step, shardings
from jaxpar.train.trained import replaced, trained
from jaxpar.train.weights import Weights


class Setup(NamedTuple):
    """All that the loop of a run needs.

    Attributes:
        step: the compiled step.
        params: the initial parameters.
        state: the initial state.
        report: what a step sends and holds on each device.
        text: returns the compiled program.
        moved: the bytes that an offloaded state moves in a step; None without offload.
    """

    step: Step
    params: Any
    state: Any
    report: Report
    text: Callable[[], str | None]
    moved: Transfers | None = None


def set_up(
    settings: Settings,
    recipe: Recipe,
    mesh: Mesh,
    batch: Any,
    seed: int,
    store: Store | None,
    smaller: Sequence[Any] = (),
    weights: Weights | None = None,
    teacher: Teacher | None = None,
) -> Setup:
    """Makes parameters and state as the recipe shards them, and compiles and inspects the step.

    `batch` gives the shape, dtype and sharding of a batch, and `smaller` those of others that the
    step takes as well. `store` keeps an offloaded state. Without `weights`, the first parameters
    are random. `teacher` teaches the decoder.
    """
    policy = POLICIES[recipe.precision]
    mixed = recipe.precision != "fp32"
    optimizer = make_optimizer(replace(recipe.optimizer, width=settings.width))
    if settings.experts:
        optimizer = balanced(optimizer, BIAS_RATE if settings.balance == "bias" else 0.0)
    optimizer = averaging(optimizer, recipe.average) if recipe.average else optimizer
    optimizer = master_weights(optimizer) if mixed else optimizer
    optimizer = skipping(optimizer, recipe.skip_spikes) if recipe.skip_spikes else optimizer
    scaling = LossScaling() if recipe.precision == "fp16" else None
    technique = technique_of(settings, recipe, teacher=teacher)
    if recipe.optimizer.name == "adam8bit":
        shapes, layouts = map(trained, leaf_layouts_of(settings, recipe.layout))
        check_blocks(shapes, layouts, recipe.layout.sizes)
    masters = _first_params(settings, recipe, technique, mesh, seed, weights)
    # The parameters as they are sent and multiplied.
    rounded = jax.jit(partial(cast, dtype=policy.params))
    params = _call_once(rounded, masters) if mixed else masters
    masters = trained(masters)
    init_state = partial(_first_state, optimizer, technique.trained, mesh)
    scale = jax.device_put(scaling.init(), shardings(mesh, WHOLE)) if scaling else None
    beside = ()
    if teacher:
        _, layouts = leaf_layouts_of(teacher.settings, recipe.layout)
        beside = (on_devices(teacher.params, layouts, mesh, policy.params),)
    if store:
        offloaded = OffloadedState(store, init_state, masters)
        finding = make_find(technique, mesh, recipe.clip)
        lowered = finding.lower(params, scale, _with(beside, batch))
        update = make_update(technique, optimizer, mesh)
        compiled = compile_program(lowered, optimize=True)
        report = _report(recipe, lowered, compiled)
        sent = update_collectives(update, optimizer, lowered.out_info[0], params)
        report = replace(report, collectives=report.collectives + sent)
        find = _by_batch(finding, (params, scale), batch, compiled, smaller, beside)
        step = make_offloaded_step(find, update, scaling)
        text = compiled.executable.as_text
        return Setup(step, params, (offloaded, scale), report, text, offloaded.transfers)

    state = init_state(masters)
    if recipe.sync_every:
        step, state = _in_rounds(
            recipe, recipe.sync_every, technique, optimizer, mesh, masters, state
        )
    elif recipe.compression:
        step, state = _compressed(
            recipe, recipe.compression, technique, optimizer, mesh, masters, state
        )
    else:
        step = make_step(technique, optimizer, mesh, max_norm=recipe.clip, scaling=scaling)
        state = (state, scale) if scaling else state
    lowered = step.lower(params, state, _with(beside, batch))
    compiled = compile_program(lowered, optimize=True)
    report = _report(recipe, lowered, compiled)
    step = _by_batch(step, (params, state), batch, compiled, smaller, beside)
    return Setup(step, params, state, report, compiled.executable.as_text)


def _by_batch(
    function: jax.stages.Wrapped,
    first: tuple[Any, Any],
    batch: Any,
    compiled: Compiled,
    others: Sequence[Any],
    beside: tuple[Any, ...],
) -> Callable:
    """A function whose last argument is a batch, compiled for each of several shapes of it.

    `first` are its other arguments, `compiled` is the function for the shape of `batch`, and
    `beside` is what it takes together with a batch.
    """
    if not others and not beside:
        return compiled.executable
    programs = {batch.shape: compiled} | {
        one.shape: compile_program(function.lower(*first, _with(beside, one)), optimize=True)
        for one in others
    }

    def call(*args: Any) -> Any:
        *first, batch = args
        return programs[batch.shape].executable(*first, _with(beside, batch))

    return call


def _with(beside: tuple[Any, ...], batch: Any) -> Any:
    """What a technique takes as a batch: the tokens, with the parameters of a teacher if any."""
    return (batch, *beside) if beside else batch


def _compressed(
    recipe: Recipe,
    compression: Compression,
    technique: Technique,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    masters: Any,
    state: Any,
) -> tuple[jax.stages.Wrapped, Any]:
    """The step of a recipe that compresses gradients, and its first state."""
    groups, kept = _groups_and_kept(compression, technique, mesh, masters)
    step = make_compressed_step(
        technique, optimizer, mesh, groups, compression, max_norm=recipe.clip
    )
    return step, (state, kept)


def _groups_and_kept(
    compression: Compression, technique: Technique, mesh: Mesh, masters: Any
) -> tuple[tuple[Group, ...], Any]:
    """Which parameters are compressed together, and what is kept of them before the first step."""
    groups = groups_of(masters, technique.layouts, mesh.shape, compression)
    specs = shardings(mesh, kept_specs(groups, compression))
    kept = jax.jit(partial(first_kept, groups, compression, mesh.shape), out_shardings=specs)
    return groups, _call_once(kept)


def _in_rounds(
    recipe: Recipe,
    steps: int,
    technique: Technique,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    masters: Any,
    state: Any,
) -> tuple[jax.stages.Wrapped, Any]:
    """The round of a recipe with so many local steps, and its state: one for each device of dp."""
    outer = OUTERS[recipe.outer]
    specs = shardings(mesh, inner_specs(technique, optimizer))
    copies = jax.jit(partial(for_each, count=recipe.layout.dp), out_shardings=specs)
    outer_state = _first_state(outer, technique.layouts, mesh, masters) if outer else ()
    states = _call_once(copies, state), outer_state
    if not recipe.compression:
        return make_round(technique, optimizer, mesh, steps=steps, outer=outer), states
    groups, kept = _groups_and_kept(recipe.compression, technique, mesh, masters)
    step = make_compressed_round(
        technique, optimizer, mesh, groups, recipe.compression, steps=steps, outer=outer
    )
    return step, (*states, kept)


def published_average(
    settings: Settings, recipe: Recipe, mesh: Mesh
) -> Callable[[PyTree[Array]], PyTree[Array]]:
    """The function from the optimizer's state to the averaged parameters, as steps use them."""
    technique = technique_of(settings, recipe, learns=False)
    return make_published(technique, mesh, POLICIES[recipe.precision].params)


def validation_loss(
    settings: Settings, recipe: Recipe, mesh: Mesh, params: Any, batch: Any
) -> Callable[[Any, Any], Array]:
    """The compiled function (params, batch) -> the mean loss of a batch, as a step finds it.

    Nothing uses the gradients, so what computes only these is left out. `params` and `batch` have
    the shapes, dtypes and shardings of those that it is called with.
    """
    technique = technique_of(settings, recipe, learns=False)

    def loss(params: Any, batch: Any) -> Array:
        found, _ = technique.find(params, batch, 1.0)
        apart = in_mesh_order(varying_axes(found))
        return lax.pmean(found, apart) if apart else found

    takes = technique.params, technique.batch
    sharded = jax.jit(jax.shard_map(loss, mesh=mesh, in_specs=takes, out_specs=WHOLE))
    return compile_program(sharded.lower(params, batch), optimize=True).executable


def technique_of(
    settings: Settings, recipe: Recipe, *, learns: bool = True, teacher: Teacher | None = None
) -> Technique:
    """How a step of this recipe finds its gradients, and how everything is sharded.

    Without `learns`, only the loss that it finds is of use. With a teacher, a batch is the tokens
    and the teacher's parameters.
    """
    layout = recipe.layout
    _, layouts = leaf_layouts_of(settings, layout)
    # The devices of tp, too, compute parts of the gradients of leaves that they hold alike.
    copies = ("tp",) if layout.sequence_parallel else ()
    apart = ("dp",) if recipe.compression or recipe.sync_every else ()
    tokens = P(layout.batch_axes)
    if teacher:
        _, of_teacher = leaf_layouts_of(teacher.settings, layout)
        find_local = _find_taught(settings, recipe, layouts, teacher.settings, of_teacher)
        batch = tokens, specs_of(of_teacher, "at_rest")
    else:
        find_local, batch = _find_local(settings, recipe, layouts, learns=learns), tokens
    find = over_devices(
        find_local,
        layouts,
        axes=(*layout.token_axes, *copies),
        parts=layout.token_parts // (layout.dp if apart else 1),
        by_shards=layout.zero == 2 or recipe.gathers_layers,
        apart=apart,
    )
    return Technique(find, layouts, batch)


def leaf_layouts_of(settings: Settings, layout: Layout) -> tuple[Any, PyTree[LeafLayouts]]:
    """The shapes of a decoder's parameters, and the layouts of every leaf."""
    params = jax.eval_shape(partial(init, settings), jax.random.key(0))
    used = used_specs(settings, layout, params)
    axes, sizes = layout.sharding_axes, layout.sizes
    return params, leaf_layouts(params, used, sizes=sizes, axes=axes, stage=layout.zero)


def _find_local(
    settings: Settings,
    recipe: Recipe,
    layouts: dict[str, PyTree[LeafLayouts]],
    *,
    learns: bool = True,
    taught: Taught | None = None,
) -> FindLocal:
    """How a device finds its own gradients; with `taught`, of what a teacher makes of the loss."""
    layout = recipe.layout
    if recipe.table:
        return by_schedule(settings, recipe, recipe.table, layouts, learns=learns)
    apply = partial(scan_layers, remat=layout.remat)
    if recipe.gathers_layers:
        loss = loss_fn(settings, gather_layers(apply, layouts[STACKED]), recipe.split, taught)
        loss = fsdp_loss(loss, layouts)
    else:
        loss = loss_fn(settings, apply, recipe.split, taught)
    return by_microbatches(
        loss, layouts, microbatches=recipe.microbatches, scatters=layout.zero == 2
    )


def _find_taught(
    settings: Settings,
    recipe: Recipe,
    layouts: dict[str, PyTree[LeafLayouts]],
    teacher: Settings,
    of_teacher: dict[str, PyTree[LeafLayouts]],
) -> FindLocal:
    """How a device finds its own gradients beside a teacher, whose parameters are in the batch."""

    def find(params: Any, batch: Any, scale: Any) -> Any:
        tokens, theirs = batch
        taught = taught_by(teacher, recipe, of_teacher, theirs)
        return _find_local(settings, recipe, layouts, taught=taught)(params, tokens, scale)

    return find


def _report(recipe: Recipe, lowered: jax.stages.Lowered, compiled: Compiled) -> Report:
    report = inspect_compiled(lowered, compiled)
    return replace(report, notes=(*report.notes, *schedule_notes(recipe)))


def _first_params(
    settings: Settings,
    recipe: Recipe,
    technique: Technique,
    mesh: Mesh,
    seed: int,
    weights: Weights | None,
) -> Any:
    """Parameters in float32; those of layers in the order in which devices hold them."""
    specs = shardings(mesh, technique.params)
    if weights and settings.adapter_rank:
        return _beside(settings, recipe, mesh, seed, weights, specs)
    if weights:
        return weights.on_devices(settings, specs, _order(settings, recipe))
    make = jax.jit(partial(_random, settings, recipe), out_shardings=specs)
    return _call_once(make, seed)


def _beside(
    settings: Settings, recipe: Recipe, mesh: Mesh, seed: int, weights: Weights, specs: PyTree[Any]
) -> Any:
    """These weights as the base, in few bits if the settings say so, with first adapters."""
    plain = replace(settings, adapter_rank=0, base_bits=None)
    whole = shardings(mesh, technique_of(plain, recipe).params)
    base = weights.on_devices(plain, whole, _order(settings, recipe))

    def make(base: Any, seed: int) -> Any:
        if settings.base_bits:
            base = base | {STACKED: encode(base[STACKED], settings.base_bits)}
        return replaced(_random(settings, recipe, seed), base)

    return _call_once(jax.jit(make, out_shardings=specs), base, seed)


def _random(settings: Settings, recipe: Recipe, seed: int) -> Any:
    """First parameters, with the layers in the order in which devices hold them."""
    params = init(settings, jax.random.key(seed))
    if recipe.table:
        order = layer_order(recipe.table, settings.layers)
        params[STACKED] = jax.tree.map(lambda leaf: leaf[order], params[STACKED])
    return params


def _order(settings: Settings, recipe: Recipe) -> list[int]:
    """The number of the layer at each place."""
    layers = settings.layers
    return list(layer_order(recipe.table, layers) if recipe.table else range(layers))


def _first_state(
    optimizer: optax.GradientTransformation,
    layouts: PyTree[LeafLayouts],
    mesh: Mesh,
    params: PyTree[Any],
) -> Any:
    """The optimizer's state for parameters in float32, or for a part of them."""
    specs = state_specs(optimizer, of_part(layouts, params))
    return _call_once(jax.jit(optimizer.init, out_shardings=shardings(mesh, specs)), params)


def _call_once(function: jax.stages.Wrapped, *args: Any) -> Any:
    """Calls a function that is used only once, so it is compiled without optimization."""
    return compile_program(function.lower(*args)).executable(*args)
