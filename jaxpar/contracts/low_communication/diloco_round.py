"""A round of local steps on each device, and one step of an outer optimizer towards their mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import mesh_order, on_every_device, whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.data_parallel.common import (
    Loss,
    leaf_by_leaf,
    linear_error_args,
    own_examples_only,
)
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.losses import layered_error_args, on_each_device, squared_error_args
from jaxpar.contracts.low_communication.common import all_reduce_bytes
from jaxpar.contracts.steps import enter
from jaxpar.parallel import local


def _trained(
    case: Case,
    loss_fn: Loss,
    params: Any,
    inner_state: Any,
    outer_state: Any,
    batches: Any,
    inner: optax.GradientTransformation,
    outer: optax.GradientTransformation,
) -> list[Expected]:
    """Every device by itself, one step after the other."""
    n = case.sizes[case.kwargs["axis"]]

    def step(carry: Any, batch: Any) -> tuple[Any, Array]:
        params, state = carry
        loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
        updates, state = inner.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), loss

    def of_device(state: Any, batches: Any) -> Any:
        return lax.scan(step, (params, state), batches)

    def of_each(leaf: Array) -> Array:  # dim 0 has the rows of one device after the other
        return leaf.reshape(n, -1, *leaf.shape[1:]) if leaf.ndim else jnp.broadcast_to(leaf, n)

    by_device = jax.tree.map(
        lambda leaf: jnp.moveaxis(leaf.reshape(len(leaf), n, -1, *leaf.shape[2:]), 1, 0), batches
    )
    (each, states), losses = jax.vmap(of_device)(jax.tree.map(of_each, inner_state), by_device)
    delta = jax.tree.map(lambda old, new: old - new.mean(axis=0), params, each)
    updates, outer_state = outer.update(delta, outer_state, params)
    others = [size for axis, size in case.sizes.items() if axis != case.kwargs["axis"]]

    def own(leaf: Array) -> Expected:
        ones = leaf.reshape(n, *[1] * len(others), *leaf.shape[1:])
        return Expected(mesh_order(case, jnp.broadcast_to(ones, (n, *others, *leaf.shape[1:]))))

    return [
        Expected(on_every_device(case, jnp.broadcast_to(losses.mean(), others))),
        *whole_on_all(case, optax.apply_updates(params, updates)),
        *map(own, jax.tree.leaves(states)),
        *whole_on_all(case, outer_state),
    ]


class Optimizer(NamedTuple):
    """An optimizer, and its state as made by a function that makes arrays like the parameters."""

    update: Any
    state: Callable[[Callable[..., Any]], Any]


EMPTY = Made(Function("optax:EmptyState"), ())


def _momentum(like: Callable[..., Any]) -> tuple[Any, ...]:
    return Made(Function("optax:TraceState"), (like(),)), EMPTY


def _adamw(like: Callable[..., Any]) -> Made:
    moments = like(), like(draw="positive")
    return Made(
        Function("jaxpar.contracts.optimizers:adamw_state"), (ArraySpec((), "", "int32"), *moments)
    )


ADAMW = Optimizer(Made(Function("optax:adamw"), (0.05, 0.9, 0.9)), _adamw)
MOMENTUM = Optimizer(Made(Function("optax:sgd"), (0.1, 0.9)), _momentum)
NESTEROV = Optimizer(Made(Function("optax:sgd"), (0.7, 0.9, True)), _momentum)
PLAIN = Optimizer(Made(Function("optax:sgd"), (0.5,)), lambda _: (EMPTY, EMPTY))
# Their weights decay much, if they are given the parameters.
DECAYING_ADAMW = Optimizer(Function("jaxpar.contracts.optimizers:ADAMW"), _adamw)
DECAYING = Optimizer(Function("jaxpar.contracts.optimizers:MOMENTUM"), lambda like: like())


def _case(mesh: str, axis: str, given: dict[str, Any], inner: Optimizer, outer: Optimizer) -> Case:
    """A round from parameters and batches; the states of both optimizers are not those of zero."""
    params = given["params"]
    n = int(dict(part.split("=") for part in mesh.split(","))[axis])
    return Case(
        mesh,
        {
            "loss_fn": given["loss_fn"],
            "params": params,
            "inner_state": inner.state(partial(on_each_device, params, n, axis)),
            "outer_state": outer.state(lambda: params),
            "batches": given["batches"],
            "inner": inner.update,
            "outer": outer.update,
        },
        {"axis": axis},
    )


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Low precision, and one step, as rounding adds up; many steps with decay; one device."""
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, others = pick(rng, ((5, 2), (4, 3), (3, 3)))
    one = (f"m b_{axis}", (1, n * pick(rng, (6, 7))))
    many = (f"m b_{axis}", (pick(rng, (11, 12)), 2 * 4))
    few = (f"m b_{axis}", (pick(rng, (2, 3)), 14))
    return (
        _case(
            mesh_of(rng, **{axis: n, other: others}),
            axis,
            linear_error_args(pick(rng, (21, 22)), batches=one),
            MOMENTUM,
            PLAIN,
        ),
        _case(
            f"{other}=3,{axis}=2",
            axis,
            squared_error_args(pick(rng, (3, 4)), 9, batches=many),
            DECAYING_ADAMW,
            DECAYING,
        ),
        _case(
            f"{axis}=1,{other}=2",
            axis,
            layered_error_args(pick(rng, (6, 7)), 11, 3, batches=few),
            MOMENTUM,
            NESTEROV,
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="make h steps of `inner` on each device, then one of `outer` towards the mean of all",
    reference=local.diloco_round,
    oracle=_trained,
    cases=(
        _case(
            "dp=8",
            "dp",
            squared_error_args(6, 16, batches=("m b_dp", (5, 8 * 10))),
            ADAMW,
            NESTEROV,
        ),
        _case(
            "dp=4,tp=2",
            "dp",
            layered_error_args(5, 10, 6, batches=("m b_dp", (3, 4 * 8))),
            MOMENTUM,
            NESTEROV,
        ),
    ),
    draw=_drawn,
    communication=Communication(
        "one all-reduce's bytes of the parameters in a round, however many steps it has, and the "
        "loss",
        forward=(
            (Limit(("all_reduce", "all_to_all", "permute"), "axis", all_reduce_bytes("params")),),
        ),
    ),
    flops=own_examples_only(),
    hints=(
        "Type the parameters as varying first, with lax.pcast, or JAX sums the gradients over the "
        "devices in each step. lax.scan over batches makes the steps: its carry is the parameters "
        "and the state of `inner`.",
        "What the outer optimizer takes for a gradient is how far the devices went, on average: "
        "the old parameters less the mean of the new ones. It points back, as a gradient does.",
        "outer.update(delta, outer_state, params), then optax.apply_updates(params, updates), both "
        "with the parameters of before the round, on every device alike.",
    ),
    minimal="In a round each device must tell the others where it has arrived, once: (n-1)/n of "
    "the parameters each way. Data parallelism would send as much in each of the h steps.",
    harder="Send the delta in 4 bits, and keep what rounding loses for the next round.",
)


def _steps(loss_fn: Loss, params: Any, state: Any, batches: Any, inner: Any) -> Any:
    """The losses of the steps, then what parameters and state become."""

    def step(carry: Any, batch: Any) -> tuple[Any, Array]:
        params, state = carry
        loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
        updates, state = inner.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), loss

    (params, state), losses = lax.scan(step, (params, state), batches)
    return losses, params, state


def _moved(params: Any, delta: Any, outer_state: Any, outer: Any) -> tuple[Any, Any]:
    updates, outer_state = outer.update(delta, outer_state, params)
    return optax.apply_updates(params, updates), outer_state


def _less(one: Any, other: Any) -> Any:
    return jax.tree.map(jnp.subtract, one, other)


def _scaled(tree: Any, factor: float) -> Any:
    return jax.tree.map(lambda leaf: leaf * factor, tree)


def _means(losses: Array, tree: Any, axis: str) -> tuple[Array, Any]:
    return lax.pmean(losses.mean(), axis), lax.pmean(tree, axis)


@wrong("values")
def delta_with_other_sign(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The outer gradient has the wrong sign: the optimizer subtracts it, so it must be the old
    parameters less the mean of the new ones."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    return loss, *_in_order(_moved(params, _less(mean, params), outer_state, outer), inner_state)


def _in_order(moved: tuple[Any, Any], inner_state: Any) -> tuple[Any, Any, Any]:
    params, outer_state = moved
    return params, inner_state, outer_state


@wrong("values")
def outer_step_from_the_mean(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The outer step is added to the mean of the new parameters; add it to the old ones, from which
    it was computed."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    return loss, *_in_order(_moved(mean, _less(params, mean), outer_state, outer), inner_state)


@wrong("values")
def mean_without_outer_step(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The parameters are the mean of all devices, which is local SGD; let `outer` step towards
    it."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    return loss, mean, inner_state, outer_state


@wrong("values")
def plain_momentum_by_hand(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The outer step is plain momentum, of rate 0.7; use the optimizer `outer`, whatever it is."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    plain = optax.sgd(0.7, momentum=0.9)
    if not jax.tree.leaves(outer_state):
        plain = optax.sgd(0.7)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, plain), inner_state)


@wrong("values")
def outer_without_parameters(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """`outer` is not given the parameters, so that its weights do not decay; call
    outer.update(delta, outer_state, params)."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    updates, outer_state = outer.update(_less(params, mean), outer_state)
    return loss, optax.apply_updates(params, updates), inner_state, outer_state


@wrong("values")
def inner_state_begins_anew(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The state of `inner` begins anew in each round; go on with `inner_state`, so that its moments
    last."""
    own = enter(params, axis)
    fresh = jax.tree.map(
        lambda new, old: (0 * old + new).astype(old.dtype), inner.init(own), inner_state
    )
    losses, own, inner_state = _steps(loss_fn, own, fresh, batches, inner)
    loss, mean = _means(losses, own, axis)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, outer), inner_state)


@wrong("values")
def inner_states_averaged(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The states of `inner` are averaged over the devices, three times the bytes; each device keeps
    its own."""
    losses, own, state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    state = jax.tree.map(lambda leaf: lax.pmean(leaf, axis).astype(leaf.dtype), state)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, outer), state)


@wrong("values")
def old_inner_state_returned(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The old state of `inner` is returned; return the one after the last step."""
    losses, own, _ = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, outer), inner_state)


@wrong("values")
def old_outer_state_returned(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The old state of `outer` is returned; return the one that its step made."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    params, _ = _moved(params, _less(params, mean), outer_state, outer)
    return loss, params, inner_state, outer_state


@wrong("values")
def deltas_added_up(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    """The outer gradient is the sum of how far the devices went; take the mean."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    delta = _scaled(_less(params, mean), lax.axis_size(axis))
    return loss, *_in_order(_moved(params, delta, outer_state, outer), inner_state)


@wrong("values")
def delta_of_one_step(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    """The outer gradient is divided by the number of steps; it is how far the devices went in the
    whole round."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    delta = _scaled(_less(params, mean), 1 / len(losses))
    return loss, *_in_order(_moved(params, delta, outer_state, outer), inner_state)


@wrong("values")
def each_device_for_itself(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The outer gradient is how far this device went; take the mean of all, so that the parameters
    are equal again."""
    start = enter(params, axis)
    losses, own, inner_state = _steps(loss_fn, start, inner_state, batches, inner)
    loss = lax.pmean(losses.mean(), axis)
    return loss, *_in_order(_moved(start, _less(start, own), outer_state, outer), inner_state)


@wrong("values")
def gradients_averaged_in_each_step(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The gradients are averaged in each step, which is data parallelism and h times the bytes; let
    each device step by its own gradients."""

    def step(carry: Any, batch: Any) -> tuple[Any, Array]:
        own, state = carry
        loss, gradients = jax.value_and_grad(loss_fn)(own, batch)
        mean = jax.tree.map(lambda g: enter(lax.pmean(g, axis), axis), gradients)
        updates, state = inner.update(mean, state, own)
        return (optax.apply_updates(own, updates), state), loss

    (own, inner_state), losses = lax.scan(step, (enter(params, axis), inner_state), batches)
    loss, mean = _means(losses, own, axis)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, outer), inner_state)


@wrong("values")
def params_not_cast(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    """`params` are not cast, so JAX sums the first gradients over the devices; lax.pcast them to
    varying before the first step."""
    own, losses = params, []
    for i in range(len(jax.tree.leaves(batches)[0])):
        batch = jax.tree.map(lambda leaf, i=i: leaf[i], batches)
        loss, gradients = jax.value_and_grad(loss_fn)(own, batch)
        updates, inner_state = inner.update(gradients, inner_state, own)
        own, losses = optax.apply_updates(own, updates), [*losses, loss]
    loss, mean = _means(jnp.stack(losses), own, axis)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, outer), inner_state)


@wrong("values")
def one_step_by_the_mean_gradient(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """All gradients are computed at the old parameters, and one step is made by their mean; each
    batch makes a step of its own, from where the one before it led."""
    start = enter(params, axis)
    losses, each = jax.vmap(lambda batch: jax.value_and_grad(loss_fn)(start, batch))(batches)
    gradients = jax.tree.map(lambda leaf: leaf.mean(axis=0), each)
    updates, inner_state = inner.update(gradients, inner_state, start)
    loss, mean = _means(losses, optax.apply_updates(start, updates), axis)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, outer), inner_state)


@wrong("values")
def last_batch_left_out(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    """The last batch makes no step; make one for each of the h batches."""
    fewer = jax.tree.map(lambda leaf: leaf[:-1], batches)
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, fewer, inner)
    loss, mean = _means(losses, own, axis)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, outer), inner_state)


@wrong("values")
def loss_of_the_last_step(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The loss is that of the last step; return the mean over the steps and the devices."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses[-1], own, axis)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, outer), inner_state)


@wrong("values")
def loss_of_one_device(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    """The loss is that of each device; return the mean over the devices."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    mean = lax.pmean(own, axis)
    moved = _moved(params, _less(params, mean), outer_state, outer)
    return losses.mean(), *_in_order(moved, inner_state)


@wrong("communication")
def parameters_gathered(loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis):
    """The parameters of all devices are gathered and averaged on each of them: n/2 times the bytes
    of an all-reduce."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    every = lax.all_gather(own, axis)
    mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), every)
    moved = _moved(enter(params, axis), _less(enter(params, axis), mean), outer_state, outer)
    return lax.pmean(losses.mean(), axis), *_in_order(moved, inner_state)


@wrong("communication")
def parameters_and_delta_averaged(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The new parameters are averaged, and so is how far the devices went; one of the two is
    enough."""
    losses, own, inner_state = _steps(loss_fn, enter(params, axis), inner_state, batches, inner)
    loss, mean = _means(losses, own, axis)
    delta = lax.pmean(_less(params, own), axis)
    delta = jax.tree.map(lambda one, old, new: (one + old - new) / 2, delta, params, mean)
    return loss, *_in_order(_moved(params, delta, outer_state, outer), inner_state)


@wrong("communication")
def losses_averaged_in_the_loop(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """The loss is averaged over the devices in each step; keep it on the device, and average once,
    after the loop."""

    def step(carry: Any, batch: Any) -> tuple[Any, Array]:
        own, state = carry
        loss, gradients = jax.value_and_grad(loss_fn)(own, batch)
        updates, state = inner.update(gradients, state, own)
        return (optax.apply_updates(own, updates), state), lax.pmean(loss, axis)

    (own, inner_state), losses = lax.scan(step, (enter(params, axis), inner_state), batches)
    mean = lax.pmean(own, axis)
    moved = _moved(params, _less(params, mean), outer_state, outer)
    return losses.mean(), *_in_order(moved, inner_state)


@wrong("flops")
def differentiates_leaf_by_leaf(
    loss_fn, params, inner_state, outer_state, batches, inner, outer, *, axis
):
    """You differentiate once for each leaf of params, and compute the forward pass anew each time;
    jax.value_and_grad gives the loss and the gradients of all leaves at once."""

    def step(carry: Any, batch: Any) -> tuple[Any, Array]:
        own, state = carry
        updates, state = inner.update(leaf_by_leaf(loss_fn, own, batch), state, own)
        return (optax.apply_updates(own, updates), state), loss_fn(own, batch)

    (own, inner_state), losses = lax.scan(step, (enter(params, axis), inner_state), batches)
    loss, mean = _means(losses, own, axis)
    return loss, *_in_order(_moved(params, _less(params, mean), outer_state, outer), inner_state)
