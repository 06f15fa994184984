"""Gradients of many microbatches, accumulated on each device and reduced once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.case import Case
from jaxpar.contracts.data_parallel.common import (
    Loss,
    Result,
    divided,
    leaf_by_leaf,
    linear_error_args,
    local_gradients,
    loss_and_gradients,
    microbatch_count,
    nested_error_args,
    nested_params,
    one_all_reduce,
    own_examples_only,
)
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.losses import layered_error_args, squared_error_args
from jaxpar.contracts.steps import enter
from jaxpar.parallel import data


def _accumulated(case: Case, loss_fn: Loss, params: Any, microbatches: Any) -> list[Expected]:
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), microbatches)
    return loss_and_gradients(case, loss_fn, params, batch)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, others = pick(rng, ((5, 2), (4, 3), (3, 3)))
    many = (pick(rng, (13, 15, 17)), n * pick(rng, (5, 6, 7)))  # an odd number of microbatches
    return (
        Case(
            mesh_of(rng, **{axis: n, other: others}),
            nested_error_args(nested_params(rng), microbatches=(f"m b_{axis}", many)),
            {"axis": axis},
        ),
        Case(
            f"{axis}=1,{other}=2",
            linear_error_args(
                pick(rng, (12, 13)), microbatches=(f"m b_{axis}", (1, pick(rng, range(14, 18))))
            ),
            {"axis": axis},
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="return the mean loss and gradient over m microbatches, one at a time, and over `axis`",
    reference=data.accumulate_gradients,
    oracle=_accumulated,
    cases=(
        Case(
            "dp=8",
            squared_error_args(8, 64, microbatches=("m b_dp", (10, 8 * 32))),
            {"axis": "dp"},
        ),
        Case(
            "fsdp=2,tp=3",
            layered_error_args(24, 32, 8, microbatches=("m b_fsdp", (12, 2 * 2))),
            {"axis": "fsdp"},
        ),
    ),
    draw=_drawn,
    communication=Communication(
        "one all-reduce's bytes of the gradients, however many microbatches, plus scalars",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), "axis", one_all_reduce),),),
    ),
    memory=MemoryLimit(
        "one microbatch's activations, one gradient, one accumulator: at most 2.5 times "
        "the library's bytes of intermediate results",
        multiple=2.5,
    ),
    flops=own_examples_only(),
    hints=(
        "Add up the gradients of the microbatches on each device, and reduce once, at the end.",
        "lax.scan over microbatches holds one at a time: the carry is the sum so far, and it "
        "starts from zeros typed as varying, like the gradients.",
        "lax.pcast params before the loop; inside, JAX would sum each gradient over the devices. "
        "jnp.zeros_like of what is cast is typed as the gradients are.",
    ),
    minimal="A device can sum over its own microbatches alone; only the mean over the devices has "
    "to be sent.",
    harder="Let the microbatches have masks, and weigh each by its number of real examples.",
)


def _add_up(loss_fn: Loss, params: Any, microbatches: Any) -> Result:
    """The sums of loss and gradient over the microbatches.

    Where params are typed as equal on all devices, JAX sums the gradients over these, too.
    """

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(params, microbatch)
        return jax.tree.map(jnp.add, total, gradients), loss

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, params), microbatches)
    return losses.sum(), total


def _local_sums(loss_fn: Loss, params: Any, microbatches: Any, axis: str) -> Result:
    """The same sums for this device's shards of the microbatches alone."""
    return _add_up(loss_fn, enter(params, axis), microbatches)


@wrong("values")
def gradients_not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients are summed over the devices, by you or by JAX, and not divided by their
    number."""
    totals = _local_sums(loss_fn, params, microbatches, axis)
    loss, gradients = divided(totals, microbatch_count(microbatches))
    return lax.pmean(loss, axis), lax.psum(gradients, axis)


@wrong("values")
def mean_of_sums(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """JAX has already summed the gradients, because `params` were not cast, and the mean of equal
    sums is that sum: n times too large. First lax.pcast params to varying."""
    totals = _add_up(loss_fn, params, microbatches)
    return lax.pmean(divided(totals, microbatch_count(microbatches)), axis)


@wrong("values")
def microbatches_not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients of the m microbatches are added and not divided by m."""
    loss, gradients = _local_sums(loss_fn, params, microbatches, axis)
    return lax.pmean((loss / microbatch_count(microbatches), gradients), axis)


@wrong("values")
def loss_not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients are right, but the loss is summed over the devices and not divided by their
    number; take the mean of both."""
    totals = _local_sums(loss_fn, params, microbatches, axis)
    loss, gradients = divided(totals, microbatch_count(microbatches))
    return lax.psum(loss, axis), lax.pmean(gradients, axis)


@wrong("values")
def losses_not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients are right, but the losses of the m microbatches are added and not divided by
    m."""
    loss, gradients = _local_sums(loss_fn, params, microbatches, axis)
    return lax.pmean((loss, divided(gradients, microbatch_count(microbatches))), axis)


@wrong("values")
def totals_of_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """Loss and gradients of the m microbatches are added, and neither is divided by m."""
    return lax.pmean(_local_sums(loss_fn, params, microbatches, axis), axis)


@wrong("values")
def sums_of_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """Loss and gradients of the m microbatches are not divided by m, and JAX has summed the
    gradients over the devices, because `params` were not cast; lax.pcast them before the loop, and
    divide both by m."""
    return lax.pmean(_add_up(loss_fn, params, microbatches), axis)


@wrong("values")
def neither_cast_nor_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients of the m microbatches are not divided by m, and JAX has summed them over the
    devices, because `params` were not cast; lax.pcast them before the loop, and divide by m."""
    loss, gradients = _add_up(loss_fn, params, microbatches)
    return lax.pmean((loss / microbatch_count(microbatches), gradients), axis)


@wrong("values")
def nothing_averaged(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """Each device returns the loss of its own shards, and gradients that JAX has summed, because
    `params` were not cast; first lax.pcast params to varying, then take the mean of both over the
    devices."""
    return divided(_add_up(loss_fn, params, microbatches), microbatch_count(microbatches))


@wrong("values")
def result_stays_local(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """Each device returns the loss and the gradient of its own shards; take the mean of both over
    the devices."""
    return divided(_local_sums(loss_fn, params, microbatches, axis), microbatch_count(microbatches))


@wrong("values")
def last_microbatch_only(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """Only the last microbatch counts; add up loss and gradients of all m."""
    last = jax.tree.map(lambda leaf: leaf[-1], microbatches)
    return lax.pmean(local_gradients(loss_fn, params, last, axis), axis)


@wrong("communication")
def hidden_in_loop(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """`params` are not cast, so JAX sums the gradients over the devices in every microbatch;
    lax.pcast them before the loop, and reduce once after it."""
    loss, gradients = divided(
        _add_up(loss_fn, params, microbatches), microbatch_count(microbatches)
    )
    return lax.pmean(loss, axis), divided(gradients, lax.axis_size(axis))


@wrong("communication")
def reduces_each_microbatch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients are reduced in every microbatch, m times; add them up on each device, and
    reduce the sum once, after the loop."""
    local = enter(params, axis)

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        loss, gradients = lax.pmean(jax.value_and_grad(loss_fn)(local, microbatch), axis)
        return jax.tree.map(jnp.add, total, gradients), loss

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, params), microbatches)
    return losses.mean(), divided(total, len(losses))


@wrong("communication")
def loss_in_loop(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The loss is reduced in every microbatch; keep it on the device, and reduce its mean once,
    after the loop."""
    local = enter(params, axis)

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(local, microbatch)
        return jax.tree.map(jnp.add, total, gradients), lax.pmean(loss, axis)

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, local), microbatches)
    return losses.mean(), lax.pmean(divided(total, len(losses)), axis)


@wrong("memory")
def unrolls_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """A Python loop puts all m microbatches into one program, and the compiler holds what many of
    them need at once; use lax.scan."""
    each = []
    for i in range(microbatch_count(microbatches)):
        microbatch = jax.tree.map(lambda leaf, i=i: leaf[i], microbatches)
        each.append(local_gradients(loss_fn, params, microbatch, axis))
    return lax.pmean(jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *each), axis)


@wrong("memory")
def vmaps_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """vmap computes all microbatches at once, so the activations and gradients of all m are held;
    use lax.scan."""

    def gradients(microbatch: Any) -> Result:
        return local_gradients(loss_fn, params, microbatch, axis)

    each = jax.vmap(gradients)(microbatches)
    return lax.pmean(jax.tree.map(lambda leaf: leaf.mean(axis=0), each), axis)


@wrong("memory")
def stacks_gradients(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients of all m microbatches are kept and averaged at the end; add each to one
    accumulator, the carry of lax.scan."""

    def gradients(microbatch: Any) -> Result:
        return local_gradients(loss_fn, params, microbatch, axis)

    each = lax.map(gradients, microbatches)
    return lax.pmean(jax.tree.map(lambda leaf: leaf.mean(axis=0), each), axis)


@wrong("memory")
def keeps_every_microbatch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """One backward pass over all microbatches keeps the activations of all m; differentiate inside
    the loop, one microbatch at a time."""

    def mean_loss(params: Any, microbatches: Any) -> Array:
        return lax.map(lambda microbatch: loss_fn(params, microbatch), microbatches).mean()

    return lax.pmean(local_gradients(mean_loss, params, microbatches, axis), axis)


@wrong("flops")
def differentiates_leaf_by_leaf(
    loss_fn: Loss, params: Any, microbatches: Any, *, axis: str
) -> Result:
    """You differentiate once for each leaf of params, and compute the forward pass anew each time;
    jax.value_and_grad gives the loss and the gradients of all leaves at once."""
    local = enter(params, axis)

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        gradients = leaf_by_leaf(loss_fn, local, microbatch)
        return jax.tree.map(jnp.add, total, gradients), loss_fn(local, microbatch)

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, local), microbatches)
    return lax.pmean((losses.mean(), divided(total, len(losses))), axis)
