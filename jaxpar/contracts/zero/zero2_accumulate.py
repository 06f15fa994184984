"""ZeRO-2: each device accumulates its own rows of the gradient alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import (
    Communication,
    Contract,
    Expected,
    FlopsLimit,
    Limit,
    MemoryLimit,
    wrong,
)
from jaxpar.contracts.blocks import ring_bytes
from jaxpar.contracts.case import ArraySpec, Case, Sizes, array_leaves
from jaxpar.contracts.data_parallel.common import Loss, divided, microbatch_count
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.losses import layered_error_args, squared_error_args
from jaxpar.contracts.steps import enter, gathered, hop, scattered
from jaxpar.contracts.zero.common import SCATTERS, mean_rows, own_rows, sharded_rows
from jaxpar.parallel import zero


def _accumulated(case: Case, loss_fn: Callable, params: Any, microbatches: Any) -> list[Expected]:
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), microbatches)
    return sharded_rows(case, jax.grad(loss_fn)(params, batch))


def _microbatch_scatters(sizes: Sizes) -> float:
    """Wire bytes of a reduce-scatter of all gradients in each microbatch."""
    m = next(array_leaves(sizes.case.args["microbatches"])).shape[0]
    return m * ring_bytes(1, "params")(sizes)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """More microbatches than in the stub, a number that n does not divide; and one alone.

    One device has float32, in which it shows if only a few of its microbatches count, but for one
    leaf: a tree may have several dtypes.
    """
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, m = pick(rng, ((4, 3), (5, 2)))
    inputs, hidden = (n * pick(rng, (14, 15, 17)) for _ in range(2))
    examples = pick(rng, (17, 19, 21, 23)), n * pick(rng, (3, 5, 6))
    several = pick(rng, (13, 15)), pick(rng, (5, 7))
    alone = squared_error_args(31, 37, microbatches=(f"m b_{axis}", several))
    alone["params"] |= {"bias": _in_bfloat16(alone["params"]["bias"])}
    return (
        Case(
            mesh_of(rng, **{axis: n, other: m}),
            _in_bfloat16(
                layered_error_args(inputs, hidden, 3, microbatches=(f"m b_{axis}", examples))
            ),
            {"axis": axis},
        ),
        Case(f"{axis}=1,{other}=2", alone, {"axis": axis}),
        Case(
            f"{other}={m},{axis}={n}",
            squared_error_args(hidden, inputs, microbatches=(f"m b_{axis}", (1, 6 * n))),
            {"axis": axis},
        ),
    )


def _in_bfloat16(args: Any) -> Any:
    """The same arguments, with arrays of bfloat16."""
    match args:
        case ArraySpec():
            return replace(args, dtype="bfloat16")
        case dict():
            return {name: _in_bfloat16(part) for name, part in args.items()}
        case list() | tuple():
            return type(args)(map(_in_bfloat16, args))
    return args


CONTRACT = Contract(
    kind="program",
    task="return this device's rows of the mean gradient of m microbatches, over `axis`",
    reference=zero.zero2_accumulate,
    oracle=_accumulated,
    cases=(
        Case(
            "dp=8",
            squared_error_args(64, 64, microbatches=("m b_dp", (8, 8 * 4))),
            {"axis": "dp"},
        ),
        Case(
            "fsdp=3,tp=2",
            layered_error_args(96, 48, 4, microbatches=("m b_fsdp", (6, 3 * 4))),
            {"axis": "fsdp"},
        ),
    ),
    draw=_drawn,
    sharding=True,
    communication=Communication(
        "a reduce-scatter of the gradients in each microbatch, and nothing else",
        forward=((Limit(SCATTERS, "axis", _microbatch_scatters),),),
    ),
    memory=MemoryLimit(
        "one microbatch's activations, one gradient, and this device's rows of their sum: at most "
        "1.3 times the library's bytes of intermediate results",
        multiple=1.3,
    ),
    flops=FlopsLimit(
        "each device computes its own examples, and once: at most 1.5 times the library's flops of "
        "matrix products, so that activations may be computed again",
        multiple=1.5,
        programs=("forward",),
    ),
    # tanh of sums of 64 products is nearly 1: its derivative is a difference of equals.
    tolerance=3,
    hints=(
        "A sum of whole gradients is as large as one. Let each device add up its rows only.",
        "lax.psum_scatter(g, axis, tiled=True) in the loop adds up over the devices, and leaves "
        "each its rows; the carry of lax.scan has their shape, and is typed as varying.",
        "Cast params with lax.pcast before the loop; inside it, JAX would sum each gradient over "
        "the devices. At the end, divide by m and by lax.axis_size(axis).",
    ),
    minimal="No device may keep the rows of others, so it must send them before it computes the "
    "next gradient: (n-1)/n of the gradient in each microbatch.",
    harder="Return the mean loss, too, with no more than one scalar sent for it.",
)


Reduce = Callable[[Any, str], Any]


def _accumulate(
    loss_fn: Loss, params: Any, microbatches: Any, axis: str, *, reduced: Reduce = mean_rows
) -> Any:
    """The mean over the microbatches of this device's rows, which `reduced` makes of a gradient.

    Each gradient is that of this device alone, if params are typed as varying.
    """

    def add(total: Any, microbatch: Any) -> tuple[Any, None]:
        rows = reduced(jax.grad(loss_fn)(params, microbatch), axis)
        return jax.tree.map(jnp.add, total, rows), None

    zeros = jax.tree.map(jnp.zeros_like, own_rows(params, axis))
    total, _ = lax.scan(add, zeros, microbatches)
    return divided(total, microbatch_count(microbatches))


@wrong("values")
def gradients_not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The gradients are summed over the devices, by you or by JAX, and not divided by their
    number."""
    return _accumulate(loss_fn, enter(params, axis), microbatches, axis, reduced=scattered)


@wrong("values")
def microbatches_not_divided(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The gradients of the m microbatches are added and not divided by m."""
    mean = _accumulate(loss_fn, enter(params, axis), microbatches, axis)
    return jax.tree.map(lambda leaf: leaf * microbatch_count(microbatches), mean)


@wrong("values")
def constant_n(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The number of devices is a constant, 8, or counts all devices; lax.axis_size(axis) is the
    size of the axis."""
    return divided(gradients_not_divided(loss_fn, params, microbatches, axis=axis), 8)


@wrong("values")
def last_microbatch_only(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """Only the last microbatch counts; add up loss and gradients of all m."""
    last = jax.tree.map(lambda leaf: leaf[-1], microbatches)
    return mean_rows(jax.grad(loss_fn)(enter(params, axis), last), axis)


@wrong("values")
def rows_of_own_gradient(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """Each device adds up rows of its own gradient only; reduce-scatter the gradient of each
    microbatch."""
    return _accumulate(loss_fn, enter(params, axis), microbatches, axis, reduced=own_rows)


@wrong("values")
def mean_of_sums(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """JAX has already summed the gradients, because `params` were not cast, and the mean of equal
    sums is that sum: n times too large. First cast params to varying, with lax.pcast."""

    def reduced(sums: Any, axis: str) -> Any:
        return mean_rows(enter(sums, axis), axis)

    return _accumulate(loss_fn, params, microbatches, axis, reduced=reduced)


@wrong("sharding")
def returns_whole_gradient(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The mean gradient is gathered, so that every device returns all of it; return this device's
    rows."""
    mean = _accumulate(loss_fn, enter(params, axis), microbatches, axis)
    return gathered(mean, axis)


@wrong("communication")
def reduces_each_then_slices(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The gradients are all-reduced, by you or, where `params` are not cast, by JAX, and then cut,
    which sends twice the bytes of a reduce-scatter."""

    def reduced(gradients: Any, axis: str) -> Any:
        return own_rows(lax.pmean(gradients, axis), axis)

    return _accumulate(loss_fn, enter(params, axis), microbatches, axis, reduced=reduced)


@wrong("communication")
def gathers_gradients(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """Every device's gradients are gathered and averaged: n/2 times the bytes of an all-reduce."""

    def reduced(gradients: Any, axis: str) -> Any:
        mean = jax.tree.map(lambda g: lax.all_gather(g, axis).mean(0), gradients)
        return own_rows(mean, axis)

    return _accumulate(loss_fn, enter(params, axis), microbatches, axis, reduced=reduced)


@wrong("communication")
def gathers_batch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The batch is gathered, and every device computes all of it; let each keep its part, and
    reduce the gradients."""
    whole = lax.all_gather(microbatches, axis, axis=1, tiled=True)
    return _accumulate(loss_fn, enter(params, axis), whole, axis, reduced=own_rows)


@wrong("memory")
def full_accumulator(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The accumulator is a whole gradient; reduce-scatter each microbatch's gradient, and add up
    this device's rows."""
    params = enter(params, axis)

    def add(total: Any, microbatch: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, jax.grad(loss_fn)(params, microbatch)), None

    total, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, params), microbatches)
    return mean_rows(divided(total, microbatch_count(microbatches)), axis)


@wrong("memory")
def first_microbatch_outside(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The first microbatch is taken outside the loop, and the compiler holds its gradient in
    addition to the loop's; start from zeros in the shape of this device's rows."""
    params = enter(params, axis)

    def rows(microbatch: Any) -> Any:
        return mean_rows(jax.grad(loss_fn)(params, microbatch), axis)

    def add(total: Any, microbatch: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, rows(microbatch)), None

    first = rows(jax.tree.map(lambda leaf: leaf[0], microbatches))
    total, _ = lax.scan(add, first, jax.tree.map(lambda leaf: leaf[1:], microbatches))
    return divided(total, microbatch_count(microbatches))


@wrong("memory")
def stacks_gradients(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The gradients of all m microbatches are kept and averaged at the end; add each to one
    accumulator, the carry of lax.scan."""
    params = enter(params, axis)
    each = lax.map(lambda part: mean_rows(jax.grad(loss_fn)(params, part), axis), microbatches)
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), each)


@wrong("memory")
def vmaps_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """vmap computes all microbatches at once, so the activations and gradients of all m are held;
    use lax.scan."""
    params = enter(params, axis)
    each = jax.vmap(lambda part: jax.grad(loss_fn)(params, part))(microbatches)
    return mean_rows(jax.tree.map(lambda leaf: leaf.mean(axis=0), each), axis)


@wrong("memory")
def unrolls_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """A Python loop puts all m microbatches into one program, and the compiler holds what many of
    them need at once; use lax.scan."""
    params = enter(params, axis)
    each = []
    for i in range(microbatch_count(microbatches)):
        microbatch = jax.tree.map(lambda leaf, i=i: leaf[i], microbatches)
        each.append(mean_rows(jax.grad(loss_fn)(params, microbatch), axis))
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *each)


@wrong("memory")
def keeps_every_microbatch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """One backward pass over all microbatches keeps the activations of all m; differentiate inside
    the loop, one microbatch at a time."""

    def mean_loss(params: Any) -> Array:
        return lax.map(lambda part: loss_fn(params, part), microbatches).mean()

    return mean_rows(jax.grad(mean_loss)(enter(params, axis)), axis)


@wrong("values")
def accumulates_in_float32(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The result is float32, whatever the parameters are; start the sum from zeros of their dtype,
    or cast the mean to it."""
    params = enter(params, axis)

    def add(total: Any, microbatch: Any) -> tuple[Any, None]:
        rows = mean_rows(jax.grad(loss_fn)(params, microbatch), axis)
        return jax.tree.map(jnp.add, total, rows), None

    zeros = jax.tree.map(lambda p: jnp.zeros_like(p, jnp.float32), own_rows(params, axis))
    total, _ = lax.scan(add, zeros, microbatches)
    return divided(total, microbatch_count(microbatches))


@wrong("communication")
def sends_float32(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """Each gradient is sent as float32, whatever the parameters are; send it in their dtype, of
    which bfloat16 takes half the bytes."""

    def reduced(gradients: Any, axis: str) -> Any:
        rows = mean_rows(jax.tree.map(lambda g: g.astype(jnp.float32), gradients), axis)
        return jax.tree.map(lambda r, g: r.astype(g.dtype), rows, gradients)

    return _accumulate(loss_fn, enter(params, axis), microbatches, axis, reduced=reduced)


@wrong("flops")
def passes_microbatches_on(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The examples of all devices go round the ring, and every device computes all of them; let
    each compute its own, and reduce the gradients."""
    n, params = lax.axis_size(axis), enter(params, axis)

    def add(_: Any, held: tuple[Any, Any]) -> tuple[Any, Any]:
        total, microbatch = held
        rows = divided(own_rows(jax.grad(loss_fn)(params, microbatch), axis), n)
        passed_on = jax.tree.map(lambda leaf: hop(leaf, axis), microbatch)
        return jax.tree.map(jnp.add, total, rows), passed_on

    def add_all(total: Any, microbatch: Any) -> tuple[Any, None]:
        return lax.fori_loop(0, n, add, (total, microbatch))[0], None

    zeros = jax.tree.map(jnp.zeros_like, own_rows(params, axis))
    total, _ = lax.scan(add_all, zeros, microbatches)
    return divided(total, microbatch_count(microbatches))


@wrong("flops")
def gradient_leaf_by_leaf(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Any:
    """The loss is differentiated by one leaf after the other, and computed again for each; take the
    gradient by all parameters at once."""
    leaves, structure = jax.tree.flatten(enter(params, axis))

    def add(total: Any, microbatch: Any) -> tuple[Any, None]:
        for i in range(len(leaves)):

            def loss_of(leaf: Array, microbatch: Any, i: int = i) -> Array:
                others = [*leaves[:i], leaf, *leaves[i + 1 :]]
                return loss_fn(structure.unflatten(others), microbatch)

            rows = mean_rows(jax.grad(loss_of)(leaves[i], microbatch), axis)
            total = [*total[:i], total[i] + rows, *total[i + 1 :]]
        return total, None

    total, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, own_rows(leaves, axis)), microbatches)
    return structure.unflatten(divided(total, microbatch_count(microbatches)))
