"""The mean loss and gradient of a batch that is split over the devices."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

from jaxpar.contracts.base import Communication, Contract, Limit, wrong
from jaxpar.contracts.case import Case
from jaxpar.contracts.data_parallel.common import (
    Loss,
    Result,
    divided,
    leaf_by_leaf,
    linear_error_args,
    local_gradients,
    loss_and_gradients,
    nested_error_args,
    nested_params,
    one_all_reduce,
    own_examples_only,
)
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.losses import layered_error_args, squared_error_args
from jaxpar.contracts.steps import enter
from jaxpar.parallel import data


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, others = pick(rng, ((5, 2), (4, 3), (2, 2)))
    examples = (f"b_{axis}", (n * pick(rng, range(22, 26)),))
    few = (f"b_{axis}", (pick(rng, range(11, 15)),))
    return (
        Case(
            mesh_of(rng, **{axis: n, other: others}),
            nested_error_args(nested_params(rng), batch=examples),
            {"axis": axis},
        ),
        Case(
            f"{axis}=1,{other}=2",
            linear_error_args(pick(rng, (12, 13)), batch=few),
            {"axis": axis},
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="return the loss and its gradient with respect to params, means over `axis`",
    reference=data.data_parallel_gradients,
    oracle=loss_and_gradients,
    cases=(
        Case("dp=8", squared_error_args(6, 16, batch=("b_dp", (8 * 20,))), {"axis": "dp"}),
        Case(
            "fsdp=3,tp=2",
            layered_error_args(5, 10, 2, batch=("b_fsdp", (3 * 16,))),
            {"axis": "fsdp"},
        ),
    ),
    draw=_drawn,
    communication=Communication(
        "one all-reduce's bytes of the gradients, plus scalars",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), "axis", one_all_reduce),),),
    ),
    flops=own_examples_only(),
    hints=(
        "Each device can compute the loss and the gradient of its own shard of the batch; "
        "jax.value_and_grad gives both. Then both are averaged over the devices.",
        "Where params are typed as equal on every device, JAX sums their gradient over the "
        "devices by itself. lax.pcast(params, axis, to='varying') leaves it to you.",
        "lax.pmean takes a whole pytree: the pair of loss and gradients, for example.",
    ),
    minimal="Each device must send its gradient away and receive the mean, which no device knew "
    "before: (n-1)/n of the gradients each way.",
    harder="Clip the mean gradient to a norm of 1, and send no more than one scalar for it.",
)


@wrong("values")
def gradients_not_divided(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """The gradients are summed over the devices, by you or by JAX, and not divided by their
    number."""
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    return lax.pmean(loss, axis), lax.psum(gradients, axis)


@wrong("values")
def mean_of_sums(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """JAX has already summed the gradients, because `params` were not cast, and the mean of equal
    sums is that sum: n times too large. First lax.pcast params to varying."""
    return lax.pmean(jax.value_and_grad(loss_fn)(params, batch), axis)


@wrong("values")
def sum_of_sums(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """JAX has already summed the gradients, because `params` were not cast, and they are summed
    once more: n*n times too large. First lax.pcast params to varying."""
    loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
    return lax.pmean(loss, axis), lax.psum(enter(gradients, axis), axis)


@wrong("values")
def summed_again(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """Loss and gradients are summed and not divided, and JAX had already summed the gradients,
    because `params` were not cast; first lax.pcast params to varying, then take lax.pmean of
    both."""
    return lax.psum(jax.value_and_grad(loss_fn)(params, batch), axis)


@wrong("values")
def totals_not_divided(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """Loss and gradients are summed over the devices and not divided by their number; take the mean
    of both."""
    return lax.psum(local_gradients(loss_fn, params, batch, axis), axis)


@wrong("values")
def nothing_averaged(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """Each device returns the loss of its own shard of the batch, and gradients that JAX has
    summed, because `params` were not cast; first lax.pcast params to varying, then take the mean of
    both over the devices."""
    return jax.value_and_grad(loss_fn)(params, batch)


@wrong("values")
def result_stays_local(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """Each device returns the loss and the gradient of its own shard of the batch; take the mean of
    both over the devices."""
    return local_gradients(loss_fn, params, batch, axis)


@wrong("values")
def gradients_stay_local(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """Each device returns the gradient of its own shard of the batch; take the mean over the
    devices."""
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    return lax.pmean(loss, axis), gradients


@wrong("values")
def loss_stays_local(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """The gradients are right, but each device returns the loss of its own shard of the batch; take
    the mean of the loss, too."""
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    return loss, lax.pmean(gradients, axis)


@wrong("values")
def loss_not_divided(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """The gradients are right, but the loss is summed over the devices and not divided by their
    number; take the mean of both."""
    loss, gradients = local_gradients(loss_fn, params, batch, axis)
    return lax.psum(loss, axis), lax.pmean(gradients, axis)


@wrong("values")
def constant_n(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """You divide by a constant, 8, or by the number of all devices; divide by lax.axis_size(axis),
    the size of the axis."""
    return divided(lax.psum(local_gradients(loss_fn, params, batch, axis), axis), 8)


@wrong("communication")
def means_over_whole_mesh(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """The mean is taken over every device of the mesh; take it over `axis` alone."""
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    others = tuple(name for name in axes if name != axis)
    local = local_gradients(loss_fn, params, batch, axis)
    return lax.pmean(lax.pcast(local, others, to="varying"), axes)


@wrong("communication")
def gathers_batch(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """The batch is gathered, and every device computes all of it; let each device keep its own
    shard, and reduce the gradients."""
    return local_gradients(loss_fn, params, lax.all_gather(batch, axis, tiled=True), axis)


@wrong("communication")
def gathers_gradients(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """Every device's gradients are gathered and averaged: n/2 times the bytes of an all-reduce."""
    gathered = lax.all_gather(local_gradients(loss_fn, params, batch, axis), axis)
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), gathered)


@wrong("communication")
def reduces_twice(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """The gradients are averaged over the devices twice; the second time changes nothing and sends
    as much again."""
    once = lax.pmean(local_gradients(loss_fn, params, batch, axis), axis)
    return lax.pmean(enter(once, axis), axis)


@wrong("flops")
def differentiates_leaf_by_leaf(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """You differentiate once for each leaf of params, and compute the forward pass anew each time;
    jax.value_and_grad gives the loss and the gradients of all leaves at once."""
    local = enter(params, axis)
    return lax.pmean((loss_fn(local, batch), leaf_by_leaf(loss_fn, local, batch)), axis)


@wrong("flops")
def differentiates_forward(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    """jax.jacfwd computes a forward pass for each number in params; jax.value_and_grad goes
    backward once, and gives the gradient of all of them."""
    local = enter(params, axis)
    gradients = jax.jacfwd(lambda params: loss_fn(params, batch))(local)
    return lax.pmean((loss_fn(local, batch), gradients), axis)
