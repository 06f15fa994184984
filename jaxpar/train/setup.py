"""What a recipe needs to begin: the first parameters and state, and the compiled step."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import optax
from jax.sharding import Mesh
from jaxtyping import PyTree

from jaxpar.collectives.shards import pad_shards
from jaxpar.inspector.compiled import Compiled, compile_program
from jaxpar.inspector.program import inspect_compiled
from jaxpar.inspector.report import Report
from jaxpar.layout import Layout
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel.fsdp import fsdp_loss, gather_layers, pad_params
from jaxpar.parallel.offload import OffloadedState, Store, Transfers
from jaxpar.parallel.pipeline import layer_order
from jaxpar.parallel.precision import POLICIES, LossScaling, cast, master_weights
from jaxpar.parallel.remat import scan_layers
from jaxpar.train.offloading import make_find, make_offloaded_step, make_update, update_collectives
from jaxpar.train.pipeline import pipeline_loss, schedule_notes
from jaxpar.train.recipe import Recipe
from jaxpar.train.scaling import make_scaled_step
from jaxpar.train.step import WHOLE, Loss, Step, make_step, shardings
from jaxpar.train.techniques import param_specs, sharded_specs, technique_of

# As by PyTorch's defaults: a small weight decay of every parameter.
OPTIMIZER = optax.adamw(1e-3, weight_decay=0.01)


class Setup(NamedTuple):
    """All that the loop of a run needs.

    Attributes:
        step: the compiled step.
        params: the initial parameters.
        state: the initial state.
        report: what a step sends and holds on each device.
        moved: the bytes that an offloaded state moves in a step; None without offload.
    """

    step: Step
    params: Any
    state: Any
    report: Report
    moved: Transfers | None = None


def set_up(
    settings: Settings, recipe: Recipe, mesh: Mesh, batch: Any, seed: int, store: Store | None
) -> Setup:
    """Makes parameters and state as the recipe shards them, and compiles and inspects the step.

    `batch` gives the shape, dtype and sharding of a batch. `store` keeps an offloaded state.
    """
    layout, policy = recipe.layout, POLICIES[recipe.precision]
    mixed = recipe.precision != "fp32"
    optimizer = master_weights(OPTIMIZER) if mixed else OPTIMIZER
    scaling = LossScaling() if recipe.precision == "fp16" else None
    loss = policy.of(_loss(settings, recipe))
    masters = _first_params(settings, recipe, mesh, seed)
    # The parameters as they are sent and multiplied.
    rounded = jax.jit(partial(cast, dtype=policy.params))
    params = _call_once(rounded, masters) if mixed else masters
    technique = technique_of(layout, settings, params, optimizer)
    init_state = partial(_first_state, settings, layout, optimizer, mesh)
    scale = jax.device_put(scaling.init(), shardings(mesh, WHOLE)) if scaling else None
    if store:
        offloaded = OffloadedState(store, init_state, masters)
        specs = sharded_specs(layout, settings, params)
        find = make_find(loss, technique, specs, mesh).lower(params, scale, batch)
        update = make_update(layout, settings, optimizer, mesh)
        return _offloaded(recipe, find, update, optimizer, params, (offloaded, scale), scaling)

    state = init_state(masters)
    if scaling:
        step, state = make_scaled_step(loss, optimizer, technique, mesh, scaling), (state, scale)
    else:
        step = make_step(loss, optimizer, technique, mesh)
    lowered = step.lower(params, state, batch)
    compiled = compile_program(lowered, optimize=True)
    return Setup(compiled.executable, params, state, _report(recipe, lowered, compiled))


def _offloaded(
    recipe: Recipe,
    find: jax.stages.Lowered,
    update: jax.stages.Wrapped,
    optimizer: optax.GradientTransformation,
    params: PyTree[Any],
    state: Any,
    scaling: LossScaling | None,
) -> Setup:
    compiled = compile_program(find, optimize=True)
    report = _report(recipe, find, compiled)
    sent = update_collectives(update, optimizer, find.out_info[1], params)
    step = make_offloaded_step(compiled.executable, update, scaling)
    report = replace(report, collectives=report.collectives + sent)
    return Setup(step, params, state, report, state[0].transfers)


def _report(recipe: Recipe, lowered: jax.stages.Lowered, compiled: Compiled) -> Report:
    report = inspect_compiled(lowered, compiled)
    return replace(report, notes=(*report.notes, *schedule_notes(recipe)))


def _loss(settings: Settings, recipe: Recipe) -> Loss:
    """The loss as a function of the full parameters, or of this device's shard of them."""
    layout = recipe.layout
    if recipe.table:
        return pipeline_loss(settings, recipe, recipe.table)
    apply = partial(scan_layers, remat=layout.remat)
    if layout.zero < 3:
        return loss_fn(settings, apply, recipe.split)
    like = jax.eval_shape(partial(init, settings), jax.random.key(0))
    gathered = gather_layers(apply, like, axis=layout.state_axis)
    return fsdp_loss(loss_fn(settings, gathered), like, axis=layout.state_axis)


def _first_params(settings: Settings, recipe: Recipe, mesh: Mesh, seed: int) -> Any:
    """Random parameters in float32, padded where they are sharded."""
    layout = recipe.layout

    def make(seed: int) -> Any:
        params = init(settings, jax.random.key(seed))
        if recipe.table:
            order = layer_order(recipe.table, settings.layers)
            params["layers"] = jax.tree.map(lambda leaf: leaf[order], params["layers"])
        return pad_params(params, n=layout.sizes[layout.state_axis]) if layout.zero == 3 else params

    specs = param_specs(layout, settings, jax.eval_shape(make, seed))
    return _call_once(jax.jit(make, out_shardings=shardings(mesh, specs)), seed)


def _first_state(
    settings: Settings,
    layout: Layout,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    params: Any,
) -> Any:
    """The optimizer's state for parameters in float32."""

    def make(params: Any) -> Any:
        if layout.zero in (1, 2):
            params = pad_shards(params, n=layout.sizes[layout.state_axis])
        return optimizer.init(params)

    specs = sharded_specs(layout, settings, jax.eval_shape(optimizer.init, params))
    return _call_once(jax.jit(make, out_shardings=shardings(mesh, specs)), params)


def _call_once(function: jax.stages.Wrapped, *args: Any) -> Any:
    """Calls a function that is used only once, so it is compiled without optimization."""
    return compile_program(function.lower(*args)).executable(*args)
