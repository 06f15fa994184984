"""Exercise accumulate_gradients: many microbatches, one all-reduce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.data_parallel.common import (
    LAYERED_ERROR,
    SQUARED_ERROR,
    Loss,
    Result,
    divided,
    gradients,
    layers,
    local_gradients,
    network,
    one_all_reduce,
)
from jaxpar.parallel import data


def _accumulated(case: Case, loss_fn: Callable, params: Any, microbatches: Any) -> list[Expected]:
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), microbatches)
    return gradients(case, loss_fn, params, batch)


CONTRACT = Contract(
    kind="program",
    task="return the mean loss and gradient of m microbatches, one at a time, and over `axis`",
    reference=data.accumulate_gradients,
    oracle=_accumulated,
    cases=(
        Case(
            "dp=8",
            {
                "loss_fn": SQUARED_ERROR,
                "params": network(8, 64),
                "microbatches": {
                    "inputs": ArraySpec((10, 8 * 32, 8), "m b_dp d"),
                    "targets": ArraySpec((10, 8 * 32), "m b_dp"),
                },
            },
            {"axis": "dp"},
        ),
        Case(
            "fsdp=2,tp=3",
            {
                "loss_fn": LAYERED_ERROR,
                "params": layers(24, 32, 8),
                "microbatches": (
                    ArraySpec((12, 2 * 2, 24), "m b_fsdp d"),
                    ArraySpec((12, 2 * 2, 8), "m b_fsdp f"),
                ),
            },
            {"axis": "fsdp"},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=4",
            {
                "loss_fn": SQUARED_ERROR,
                "params": network(6, 48),
                "microbatches": {
                    "inputs": ArraySpec((7, 4 * 32, 6), "m b_dp d"),
                    "targets": ArraySpec((7, 4 * 32), "m b_dp"),
                },
            },
            {"axis": "dp"},
        ),
    ),
    communication=Communication(
        "one all-reduce's bytes of the gradients, however many microbatches, plus scalars",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), "axis", one_all_reduce),),),
    ),
    memory=MemoryLimit(
        "one microbatch's activations, one gradient, one accumulator: at most 2.5 times "
        "the library's bytes of intermediate results",
        multiple=2.5,
    ),
    hints=(
        "Add up the gradients of the microbatches on each device, and reduce once, at the end.",
        "lax.scan over microbatches holds one at a time: the carry is the sum so far, and it "
        "starts from zeros typed as varying, like the gradients.",
        "lax.pcast params before the loop; inside, JAX would sum each gradient over the devices. "
        "jnp.zeros_like of what is cast is typed as the gradients are.",
    ),
    minimal="The sum over the microbatches is the device's own; only its mean over the devices is "
    "news to the others.",
    harder="Let the microbatches have masks, and weigh each by its number of real examples.",
)


def _number(microbatches: Any) -> int:
    return len(jax.tree.leaves(microbatches)[0])


def _add_up(loss_fn: Loss, params: Any, microbatches: Any) -> Result:
    """Sums of loss and gradient over the microbatches; summed over the devices as params are."""

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(params, microbatch)
        return jax.tree.map(jnp.add, total, gradients), loss

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, params), microbatches)
    return losses.sum(), total


def _add_up_here(loss_fn: Loss, params: Any, microbatches: Any, axis: str) -> Result:
    return _add_up(loss_fn, lax.pcast(params, axis, to="varying"), microbatches)


@wrong("values")
def gradients_not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients are summed over the devices, by you or by JAX, and not divided by their
    number."""
    loss, gradients = divided(
        _add_up_here(loss_fn, params, microbatches, axis), _number(microbatches)
    )
    return lax.pmean(loss, axis), lax.psum(gradients, axis)


@wrong("values")
def mean_of_sums(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """JAX has already summed the gradients, because `params` were not cast, and the mean of equal
    sums is that sum: n times too large. First lax.pcast params to varying."""
    totals = _add_up(loss_fn, params, microbatches)
    return lax.pmean(divided(totals, _number(microbatches)), axis)


@wrong("values")
def microbatches_not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients of the m microbatches are added and not divided by m."""
    loss, gradients = _add_up_here(loss_fn, params, microbatches, axis)
    return lax.pmean((loss / _number(microbatches), gradients), axis)


@wrong("values")
def totals_of_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """Loss and gradients of the m microbatches are added, and neither is divided by m."""
    return lax.pmean(_add_up_here(loss_fn, params, microbatches, axis), axis)


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
    return lax.pmean((loss / _number(microbatches), gradients), axis)


@wrong("values")
def nothing_averaged(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The loss is that of each device's own part, and the gradients are sums: JAX made them,
    because `params` were not cast; first lax.pcast params to varying, then take the mean of both
    over the devices."""
    return divided(_add_up(loss_fn, params, microbatches), _number(microbatches))


@wrong("values")
def result_stays_local(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """Each device returns loss and gradient of its own part; take the mean of both over the
    devices."""
    return divided(_add_up_here(loss_fn, params, microbatches, axis), _number(microbatches))


@wrong("values")
def last_microbatch_only(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """Only the last microbatch counts; add up loss and gradients of all m."""
    last = jax.tree.map(lambda leaf: leaf[-1], microbatches)
    return lax.pmean(local_gradients(loss_fn, params, last, axis), axis)


@wrong("communication")
def hidden_in_loop(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """`params` are not cast, so JAX sums the gradients over the devices in every microbatch;
    lax.pcast them before the loop, and reduce once after it."""
    loss, gradients = divided(_add_up(loss_fn, params, microbatches), _number(microbatches))
    return lax.pmean(loss, axis), divided(gradients, lax.axis_size(axis))


@wrong("communication")
def reduces_each_microbatch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients are reduced in every microbatch, m times; add them up on each device, and
    reduce the sum once, after the loop."""
    local = lax.pcast(params, axis, to="varying")

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        loss, gradients = lax.pmean(jax.value_and_grad(loss_fn)(local, microbatch), axis)
        return jax.tree.map(jnp.add, total, gradients), loss

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, params), microbatches)
    return losses.mean(), divided(total, len(losses))


@wrong("communication")
def loss_in_loop(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The loss is reduced in every microbatch; keep it on the device, and reduce its mean once,
    after the loop."""
    local = lax.pcast(params, axis, to="varying")

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(local, microbatch)
        return jax.tree.map(jnp.add, total, gradients), lax.pmean(loss, axis)

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, local), microbatches)
    return losses.mean(), lax.pmean(divided(total, len(losses)), axis)


@wrong("memory")
def unrolls_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """A Python loop puts all m microbatches into one program, and the compiler holds what many of
    them need at once; use lax.scan."""
    each = [
        local_gradients(
            loss_fn, params, jax.tree.map(lambda leaf, i=i: leaf[i], microbatches), axis
        )
        for i in range(_number(microbatches))
    ]
    return lax.pmean(jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *each), axis)


@wrong("memory")
def vmaps_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """vmap computes all microbatches at once, so the activations and gradients of all m are held;
    use lax.scan."""
    each = jax.vmap(lambda microbatch: local_gradients(loss_fn, params, microbatch, axis))(
        microbatches
    )
    return lax.pmean(jax.tree.map(lambda leaf: leaf.mean(axis=0), each), axis)


@wrong("memory")
def stacks_gradients(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """The gradients of all m microbatches are kept and averaged at the end; add each to one
    accumulator, the carry of lax.scan."""
    each = lax.map(
        lambda microbatch: local_gradients(loss_fn, params, microbatch, axis), microbatches
    )
    return lax.pmean(jax.tree.map(lambda leaf: leaf.mean(axis=0), each), axis)


@wrong("memory")
def keeps_every_microbatch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    """One backward pass over all microbatches keeps the activations of all m; differentiate inside
    the loop, one microbatch at a time."""

    def mean_loss(params: Any, microbatches: Any) -> Array:
        return lax.map(lambda microbatch: loss_fn(params, microbatch), microbatches).mean()

    return lax.pmean(local_gradients(mean_loss, params, microbatches, axis), axis)
