"""Exercise zero1_update: each device updates its rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import share, whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.zero.common import SCATTERS, matrices, sharded_rows
from jaxpar.parallel import zero


def _updated(
    case: Case, grads: Any, params: Any, opt_shard: Any, optimizer: optax.GradientTransformation
) -> list[Expected]:
    n = case.sizes[case.kwargs["axis"]]
    mean = jax.tree.map(lambda g: g.reshape(n, -1, *g.shape[1:]).mean(axis=0), grads)
    updates, state = optimizer.update(mean, opt_shard, params)
    return whole_on_all(case, optax.apply_updates(params, updates)) + sharded_rows(case, state)


CONTRACT = Contract(
    kind="program",
    task="update this device's rows by the mean gradient, and put all rows together over `axis`",
    reference=zero.zero1_update,
    oracle=_updated,
    cases=(
        Case(
            "dp=8",
            {
                "grads": matrices(16, 8, 8, "d_dp f"),
                "params": matrices(16, 8, 1, "d f"),
                "opt_shard": Made(
                    Function("jaxpar.contracts.optimizers:adamw_state"),
                    (
                        ArraySpec((), "", "int32"),
                        matrices(16, 8, 1, "d_dp f"),
                        {
                            "w": ArraySpec((16, 8), "d_dp f", draw="positive"),
                            "bias": ArraySpec((8,), "d_dp", draw="positive"),
                        },
                    ),
                ),
                "optimizer": Function("jaxpar.contracts.optimizers:ADAMW"),
            },
            {"axis": "dp"},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "grads": [matrices(6, 9, 3, "d_fsdp f"), ArraySpec((3 * 12, 2, 5), "d_fsdp a h")],
                "params": [matrices(6, 9, 1, "d f"), ArraySpec((12, 2, 5), "d a h")],
                "opt_shard": [matrices(6, 9, 1, "d_fsdp f"), ArraySpec((12, 2, 5), "d_fsdp a h")],
                "optimizer": Function("jaxpar.contracts.optimizers:MOMENTUM"),
            },
            {"axis": "fsdp"},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=4",
            {
                "grads": [matrices(12, 8, 4, "d_dp f"), ArraySpec((4 * 16, 3), "d_dp h")],
                "params": [matrices(12, 8, 1, "d f"), ArraySpec((16, 3), "d h")],
                "opt_shard": [matrices(12, 8, 1, "d_dp f"), ArraySpec((16, 3), "d_dp h")],
                "optimizer": Function("jaxpar.contracts.optimizers:MOMENTUM"),
            },
            {"axis": "dp"},
        ),
    ),
    sharding=True,
    communication=Communication(
        "a reduce-scatter of the gradients and an all-gather of the parameters: the bytes of one "
        "all-reduce",
        forward=((Limit((*SCATTERS, "all_gather"), "axis", share(2, "params")),),),
    ),
    hints=(
        "Each device needs the mean gradient of its own rows only, and its rows of the parameters. "
        "Then every device has new rows, and needs those of all others.",
        "lax.psum_scatter(g, axis, tiled=True) adds up and leaves each device its rows; divide by "
        "lax.axis_size(axis). lax.dynamic_slice_in_dim takes rows from a traced index on.",
        "optimizer.update(grads, state, params) takes all three for the same rows, and "
        "optax.apply_updates adds what it returns. lax.all_gather(rows, axis, tiled=True) at last.",
    ),
    minimal="Other devices' gradients of its rows must reach a device, and its new rows all "
    "others: (n-1)/n of the parameters each way, as in an all-reduce.",
    harder="Let dim 0 be of any size: pad it, and let nobody see the padding.",
)


Optimizer = optax.GradientTransformation


Result = tuple[Any, Any]


def _own(tree: Any, axis: str, first: Any = None) -> Any:
    """This device's rows of whole leaves, or those from another device on."""
    place = lax.axis_index(axis) if first is None else first

    def rows(leaf: Array) -> Array:
        size = len(leaf) // lax.axis_size(axis)
        return lax.dynamic_slice_in_dim(leaf, place * size, size)

    return jax.tree.map(rows, tree)


def _sums(grads: Any, axis: str) -> Any:
    return jax.tree.map(lambda g: lax.psum_scatter(g, axis, tiled=True), grads)


def _gather(tree: Any, axis: str) -> Any:
    return jax.tree.map(lambda rows: lax.all_gather(rows, axis, tiled=True), tree)


def _new_rows(
    rows: Any, params: Any, opt_shard: Any, optimizer: Optimizer, axis: str
) -> tuple[Any, Any]:
    own = _own(params, axis)
    updates, state = optimizer.update(rows, opt_shard, own)
    return optax.apply_updates(own, updates), state


def _finish(rows: Any, params: Any, opt_shard: Any, optimizer: Optimizer, axis: str) -> Result:
    new, state = _new_rows(rows, params, opt_shard, optimizer, axis)
    return _gather(new, axis), state


@wrong("values")
def gradients_not_divided(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """The gradients are summed over the devices, by you or by JAX, and not divided by their
    number."""
    return _finish(_sums(grads, axis), params, opt_shard, optimizer, axis)


def _over(tree: Any, n: int) -> Any:
    return jax.tree.map(lambda leaf: leaf / n, tree)


@wrong("values")
def constant_n(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """The number of devices is a constant, 8, or counts all devices; lax.axis_size(axis) is the
    size of the axis."""
    return _finish(_over(_sums(grads, axis), 8), params, opt_shard, optimizer, axis)


@wrong("values")
def update_by_own_gradients(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """Each device updates its rows by its own gradient; reduce-scatter the gradients first."""
    return _finish(_own(grads, axis), params, opt_shard, optimizer, axis)


def _means(grads: Any, axis: str) -> Any:
    return _over(_sums(grads, axis), lax.axis_size(axis))


@wrong("values")
def params_not_passed(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """The optimizer is not given the parameters, so that their decay is lost; pass it this device's
    rows of them."""
    updates, state = optimizer.update(_means(grads, axis), opt_shard)
    return _gather(optax.apply_updates(_own(params, axis), updates), axis), state


@wrong("values")
def first_rows_everywhere(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """Every device updates the first rows; device i takes those from i times their number on."""
    own = _own(params, axis, first=0)
    updates, state = optimizer.update(_means(grads, axis), opt_shard, own)
    return _gather(optax.apply_updates(own, updates), axis), state


@wrong("values")
def rows_not_gathered(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """Each device returns its new rows only; gather the rows of all."""
    return _new_rows(_means(grads, axis), params, opt_shard, optimizer, axis)


@wrong("values")
def others_not_updated(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """Each device returns the old parameters with its new rows in them; gather the new rows of
    all."""
    new, state = _new_rows(_means(grads, axis), params, opt_shard, optimizer, axis)

    def put(whole: Array, rows: Array) -> Array:
        start = lax.axis_index(axis) * len(rows)
        whole = lax.pcast(whole, axis, to="varying")
        return lax.dynamic_update_slice_in_dim(whole, rows, start, 0)

    return jax.tree.map(put, params, new), state


@wrong("values")
def updates_returned(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """What the optimizer returns is to be added to the parameters, with optax.apply_updates."""
    updates, state = optimizer.update(_means(grads, axis), opt_shard, _own(params, axis))
    return _gather(updates, axis), state


@wrong("values")
def old_state_returned(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """The state comes back as it was; return the one that the optimizer made."""
    new, _ = _finish(_means(grads, axis), params, opt_shard, optimizer, axis)
    return new, opt_shard


def _gather_state(state: Any, axis: str) -> Any:
    return jax.tree.map(lambda x: lax.all_gather(x, axis, tiled=True) if x.ndim else x, state)


@wrong("sharding")
def returns_whole_state(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """The new state is gathered, so that every device holds all of it; return this device's
    part."""
    new, state = _finish(_means(grads, axis), params, opt_shard, optimizer, axis)
    return new, _gather_state(state, axis)


@wrong("communication")
def reduces_then_slices(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """The gradients are all-reduced and then cut, which sends twice the bytes of a reduce-
    scatter."""
    return _finish(_own(lax.pmean(grads, axis), axis), params, opt_shard, optimizer, axis)


@wrong("communication")
def gathers_gradients(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """Every device's gradients are gathered and averaged: n/2 times the bytes of an all-reduce."""
    mean = jax.tree.map(lambda g: lax.all_gather(g, axis).mean(axis=0), grads)
    return _finish(_own(mean, axis), params, opt_shard, optimizer, axis)


def _own_state(state: Any, axis: str) -> Any:
    return jax.tree.map(lambda x: _own(x, axis) if x.ndim else x, state)


@wrong("communication")
def gathers_state(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """The state is gathered, and every device updates everything; update this device's rows, with
    this device's state."""
    whole = _gather_state(opt_shard, axis)
    updates, state = optimizer.update(lax.pmean(grads, axis), whole, params)
    return optax.apply_updates(params, updates), _own_state(state, axis)


@wrong("communication")
def adds_rows_in_zeros(
    grads: Any, params: Any, opt_shard: Any, optimizer: Optimizer, *, axis: str
) -> Result:
    """The new rows are put together as an all-reduce of rows among zeros, twice the bytes of an
    all-gather."""
    new, state = _new_rows(_means(grads, axis), params, opt_shard, optimizer, axis)

    def join(rows: Array) -> Array:
        start = lax.axis_index(axis) * len(rows)
        zeros = jnp.zeros((lax.axis_size(axis) * len(rows), *rows.shape[1:]), rows.dtype)
        zeros = lax.pcast(zeros, axis, to="varying")
        return lax.psum(lax.dynamic_update_slice_in_dim(zeros, rows, start, 0), axis)

    return jax.tree.map(join, new), state
