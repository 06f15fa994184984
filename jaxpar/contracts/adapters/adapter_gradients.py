"""The mean loss and the gradient of adapters alone, of a batch that is split over the devices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.adapters.common import ADAPTED_ERROR, TABLED_ERROR
from jaxpar.contracts.base import Communication, Contract, Expected, FlopsLimit, Limit, wrong
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Sizes, array_leaves
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import enter
from jaxpar.parallel import adapters as library

Loss = Callable[[Any, Any, Any], Array]
Result = tuple[Array, Any]
ITEM_BYTES = 4  # what has fewer bytes may be sent as float32


def _loss_and_gradient(
    case: Case, loss_fn: Loss, base: Any, adapters: Any, batch: Any
) -> list[Expected]:
    return whole_on_all(case, jax.value_and_grad(loss_fn, argnums=1)(base, adapters, batch))


def _one_all_reduce(sizes: Sizes) -> int:
    """Wire bytes of loss and gradients in float32, each leaf padded to n chunks."""
    n = sizes.n()
    counts = [math.prod(leaf.shape) for leaf in array_leaves(sizes.case.args["adapters"])]
    return 2 * (n - 1) * ITEM_BYTES * sum(-(-count // n) for count in (1, *counts))


def _case(mesh: str, axis: str, layers: int, d: int, r: int, examples: int) -> Case:
    """Square matrices with adapters; so many examples on each device of the axis."""
    b = examples * Case(mesh, {}).sizes[axis]
    adapter = {"a": ArraySpec((d, r), "d r"), "b": ArraySpec((r, d), "r d")}
    args = {
        "loss_fn": ADAPTED_ERROR,
        "base": [ArraySpec((d, d), "d f")] * layers,
        "adapters": [adapter] * layers,
        "batch": {
            "inputs": ArraySpec((b, d), f"b_{axis} d"),
            "targets": ArraySpec((b, d), f"b_{axis} d"),
        },
    }
    return Case(mesh, args, {"axis": axis})


def _tabled_case(rng: np.random.Generator, mesh: str, axis: str, examples: int) -> Case:
    """A base in bfloat16, with integers in it and in the batch, and adapters of two dtypes."""
    b = examples * Case(mesh, {}).sizes[axis]
    d, r, outputs = pick(rng, (9, 11)), 2, pick(rng, (5, 6))
    args = {
        "loss_fn": TABLED_ERROR,
        "base": {
            "head": ArraySpec((d, outputs), "d o", "bfloat16"),
            "table": ArraySpec((pick(rng, (17, 19)), d), "v d", "bfloat16"),
        },
        "adapters": {
            "gain": (ArraySpec((d,), "d"), ArraySpec((outputs,), "o")),
            "low": (ArraySpec((d, r), "d r", "bfloat16"), ArraySpec((r, outputs), "r o")),
        },
        "batch": (
            ArraySpec((b,), f"b_{axis}", "int32"),
            ArraySpec((b, outputs), f"b_{axis} o"),
        ),
    }
    return Case(mesh, args, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, others = pick(rng, ((5, 2), (4, 3), (2, 2)))
    return (
        _tabled_case(rng, mesh_of(rng, **{axis: n, other: others}), axis, pick(rng, (22, 25))),
        _case(f"{axis}=1,{other}=2", axis, 6, pick(rng, (17, 19)), 3, pick(rng, (11, 14))),
    )


CONTRACT = Contract(
    kind="program",
    task="return the loss and its gradient with respect to the adapters, means over `axis`",
    reference=library.adapter_gradients,
    oracle=_loss_and_gradient,
    cases=(
        _case("dp=8", "dp", 4, 24, 4, 16),
        _case("fsdp=3,tp=2", "fsdp", 2, 30, 5, 20),
    ),
    draw=_drawn,
    communication=Communication(
        "one all-reduce's bytes of the adapters' gradients, plus scalars",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), "axis", _one_all_reduce),),),
    ),
    flops=FlopsLimit(
        "no gradient of the base: at most 1.1 times the library's flops in matrix products",
        multiple=1.1,
        programs=("forward",),
    ),
    hints=(
        "It is data parallelism for the adapters alone. The loss depends on the base as well, but "
        "as on the batch: without a gradient.",
        "jax.value_and_grad(loss_fn, argnums=1) differentiates with respect to the second argument "
        "only. Where that is typed as equal on every device, JAX sums its gradient by itself; "
        "lax.pcast(adapters, axis, to='varying') leaves it to you.",
        "lax.pmean takes a whole pytree: the pair of loss and gradients, for example.",
    ),
    minimal="Each device must send its gradient of the adapters away and receive the mean; of the "
    "base, which nobody changes, nobody needs to know anything.",
    harder="Let every device have its own adapter and its own examples, on one base, as a server "
    "of many adapters does: what is sent then?",
)


def _local(loss_fn: Loss, base: Any, adapters: Any, batch: Any, axis: str) -> Result:
    """The loss and the gradient of this device's shard of the batch alone."""
    return jax.value_and_grad(loss_fn, argnums=1)(base, enter(adapters, axis), batch)


@wrong("values")
def gradients_not_divided(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """The gradients are summed over the devices, by you or by JAX, and not divided by their
    number."""
    loss, gradients = _local(loss_fn, base, adapters, batch, axis)
    return lax.pmean(loss, axis), lax.psum(gradients, axis)


@wrong("values")
def mean_of_sums(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """JAX has already summed the gradients, because `adapters` were not cast, and the mean of equal
    sums is that sum: n times too large. First lax.pcast adapters to varying."""
    return lax.pmean(jax.value_and_grad(loss_fn, argnums=1)(base, adapters, batch), axis)


@wrong("values")
def totals_not_divided(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """Loss and gradients are summed over the devices and not divided by their number; take the mean
    of both."""
    return lax.psum(_local(loss_fn, base, adapters, batch, axis), axis)


@wrong("values")
def result_stays_local(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """Each device returns the loss and the gradient of its own shard of the batch; take the mean of
    both over the devices."""
    return _local(loss_fn, base, adapters, batch, axis)


@wrong("values")
def gradients_stay_local(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """Each device returns the gradient of its own shard of the batch; take the mean over the
    devices."""
    loss, gradients = _local(loss_fn, base, adapters, batch, axis)
    return lax.pmean(loss, axis), gradients


@wrong("values")
def loss_stays_local(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """The gradients are right, but each device returns the loss of its own shard of the batch; take
    the mean of the loss, too."""
    loss, gradients = _local(loss_fn, base, adapters, batch, axis)
    return loss, lax.pmean(gradients, axis)


@wrong("values")
def gradient_of_the_base(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """This is the gradient with respect to the base, which is frozen; it is the adapters that are
    trained: argnums=1."""
    return lax.pmean(jax.value_and_grad(loss_fn)(enter(base, axis), adapters, batch), axis)


@wrong("values")
def gradients_of_both(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """Gradients of base and adapters are returned; return those of the adapters alone."""
    both = jax.value_and_grad(loss_fn, argnums=(0, 1))
    return lax.pmean(both(enter(base, axis), enter(adapters, axis), batch), axis)


@wrong("communication")
def base_reduced_and_dropped(
    loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str
) -> Any:
    """The gradient of the base is computed, all-reduced and dropped; differentiate with respect to
    the adapters alone."""
    both = jax.value_and_grad(loss_fn, argnums=(0, 1))
    loss, gradients = lax.pmean(both(enter(base, axis), enter(adapters, axis), batch), axis)
    return loss, gradients[1]


@wrong("communication")
def batch_gathered(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """The batch is gathered, and every device computes all of it; let each device keep its own
    shard, and reduce the gradients."""
    whole = lax.all_gather(batch, axis, tiled=True)
    return lax.pmean(_local(loss_fn, base, adapters, whole, axis), axis)


@wrong("communication")
def gradients_gathered(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """Every device's gradients are gathered and averaged: n/2 times the bytes of an all-reduce."""
    gathered = lax.all_gather(_local(loss_fn, base, adapters, batch, axis), axis)
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), gathered)


@wrong("communication")
def reduced_twice(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """The gradients are averaged over the devices twice; the second time changes nothing and sends
    as much again."""
    once = lax.pmean(_local(loss_fn, base, adapters, batch, axis), axis)
    return lax.pmean(enter(once, axis), axis)


@wrong("flops")
def base_differentiated(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """The gradient of the base is computed, and used for nothing; differentiate with respect to the
    adapters alone, and a third of the work is saved."""
    both = jax.value_and_grad(loss_fn, argnums=(0, 1))
    loss, (of_base, gradients) = both(enter(base, axis), enter(adapters, axis), batch)
    for leaf in jax.tree.leaves(of_base):
        loss = loss + (0 * leaf.sum()).astype(loss.dtype)
    return lax.pmean((loss, gradients), axis)


@wrong("flops")
def loss_computed_apart(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """The forward pass is computed twice, for the loss and for the gradient; jax.value_and_grad
    gives both at once."""
    local = enter(adapters, axis)
    gradients = jax.grad(loss_fn, argnums=1)(base, local, batch)
    return lax.pmean((loss_fn(base, local, batch), gradients), axis)


@wrong("values")
def gradients_in_float32(loss_fn: Loss, base: Any, adapters: Any, batch: Any, *, axis: str) -> Any:
    """All gradients are float32; each has the dtype of its adapter."""
    mean = lax.pmean(_local(loss_fn, base, adapters, batch, axis), axis)
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), mean)
