"""What a plan makes of a model: its first parameters and state, and the compiled step."""

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
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel.fsdp import fsdp_loss, gather_layers, pad_params
from jaxpar.parallel.offload import OffloadedState, Store, Transfers
from jaxpar.parallel.pipeline import layer_order
from jaxpar.parallel.precision import POLICIES, LossScaling, cast, master_weights
from jaxpar.parallel.remat import scan_layers
from jaxpar.train.layouts import layout, params_lie, shared
from jaxpar.train.offloading import make_find, make_offloaded_step, make_update, update_collectives
from jaxpar.train.pipeline import pipeline_loss, schedule_notes
from jaxpar.train.plan import Plan
from jaxpar.train.scaling import make_scaled_step
from jaxpar.train.step import WHOLE, Loss, Step, make_step, shardings

# PyTorch's default: a little decay of every parameter.
OPTIMIZER = optax.adamw(1e-3, weight_decay=0.01)


class Setup(NamedTuple):
    """All that the loop of a run needs.

    Attributes:
        step: compiled.
        params: the first parameters.
        state: the first state.
        report: what a step sends and holds on each device.
        moved: what an offloaded state moves in a step; None if it stays.
    """

    step: Step
    params: Any
    state: Any
    report: Report
    moved: Transfers | None = None


def set_up(
    settings: Settings, plan: Plan, mesh: Mesh, batch: Any, seed: int, store: Store | None
) -> Setup:
    """Makes parameters and state where the plan wants them, and compiles and inspects the step.

    `batch` is the shape of one, with its sharding; `store` is where an offloaded state goes.
    """
    mixed = plan.precision != "fp32"
    optimizer = master_weights(OPTIMIZER) if mixed else OPTIMIZER
    scaling = LossScaling() if plan.precision == "fp16" else None
    loss = POLICIES[plan.precision].of(_loss(settings, plan))
    masters = _first_params(settings, plan, mesh, seed)
    state = partial(_first_state, settings, plan, optimizer, mesh)
    scale = jax.device_put(scaling.init(), shardings(mesh, WHOLE)) if scaling else None
    if store:
        offloaded = OffloadedState(store, state, masters)
        params = _rounded(masters, plan) if mixed else masters
        lie = layout(plan, settings, params, optimizer)
        found = shared(plan, settings, params)
        find = make_find(loss, lie, found, mesh).lower(params, scale, batch)
        update = make_update(plan, settings, optimizer, mesh)
        return _offloaded(plan, find, update, optimizer, params, (offloaded, scale), scaling)

    first = state(masters)
    params = _rounded(masters, plan) if mixed else masters
    lie = layout(plan, settings, params, optimizer)
    if scaling:
        step, first = make_scaled_step(loss, optimizer, lie, mesh, scaling), (first, scale)
    else:
        step = make_step(loss, optimizer, lie, mesh)
    lowered = step.lower(params, first, batch)
    compiled = compile_program(lowered, fast=True)
    return Setup(compiled.executable, params, first, _report(plan, lowered, compiled))


def _offloaded(
    plan: Plan,
    find: jax.stages.Lowered,
    update: jax.stages.Wrapped,
    optimizer: optax.GradientTransformation,
    params: PyTree[Any],
    state: Any,
    scaling: LossScaling | None,
) -> Setup:
    compiled = compile_program(find, fast=True)
    report = _report(plan, find, compiled)
    sent = update_collectives(update, optimizer, find.out_info[1], params)
    step = make_offloaded_step(compiled.executable, update, scaling)
    report = replace(report, collectives=report.collectives + sent)
    return Setup(step, params, state, report, state[0].transfers)


def _report(plan: Plan, lowered: jax.stages.Lowered, compiled: Compiled) -> Report:
    report = inspect_compiled(lowered, compiled)
    return replace(report, notes=(*report.notes, *schedule_notes(plan)))


def _loss(settings: Settings, plan: Plan) -> Loss:
    """Of whole parameters, or of this device's part of them."""
    if plan.table:
        return pipeline_loss(settings, plan, plan.table)
    apply = partial(scan_layers, remat=plan.remat)
    if plan.stage < 3:
        return loss_fn(settings, apply, plan.split)
    like = jax.eval_shape(partial(init, settings), jax.random.key(0))
    gathered = gather_layers(apply, like, axis=plan.shard_axis)
    return fsdp_loss(loss_fn(settings, gathered), like, axis=plan.shard_axis)


def _first_params(settings: Settings, plan: Plan, mesh: Mesh, seed: int) -> Any:
    """Random parameters in float32, padded where devices share them."""

    def make(seed: int) -> Any:
        params = init(settings, jax.random.key(seed))
        if plan.table:
            order = layer_order(plan.table, settings.layers)
            params["layers"] = jax.tree.map(lambda leaf: leaf[order], params["layers"])
        return pad_params(params, n=plan.sizes[plan.shard_axis]) if plan.stage == 3 else params

    lie = params_lie(plan, settings, jax.eval_shape(make, seed))
    return _once(jax.jit(make, out_shardings=shardings(mesh, lie)), seed)


def _first_state(
    settings: Settings,
    plan: Plan,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    params: Any,
) -> Any:
    """The optimizer's state for parameters in float32."""

    def make(params: Any) -> Any:
        if plan.stage in (1, 2):
            params = pad_shards(params, n=plan.sizes[plan.shard_axis])
        return optimizer.init(params)

    lie = shared(plan, settings, jax.eval_shape(optimizer.init, params))
    return _once(jax.jit(make, out_shardings=shardings(mesh, lie)), params)


def _rounded(params: Any, plan: Plan) -> Any:
    """The parameters as they are sent and multiplied."""
    return _once(jax.jit(partial(cast, dtype=POLICIES[plan.precision].params)), params)


def _once(function: jax.stages.Wrapped, *args: Any) -> Any:
    """Calls it, compiled in a third of the time, for it is called once."""
    return compile_program(function.lower(*args)).executable(*args)
