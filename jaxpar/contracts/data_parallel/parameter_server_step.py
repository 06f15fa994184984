"""Exercise parameter_server_step: one device updates for all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar import collectives
from jaxpar.contracts import updates
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes
from jaxpar.parallel import server


def _expected_update(
    case: Case, loss_fn: Callable, params: Any, batch: Any, update_fn: partial
) -> list[Expected]:
    server = case.kwargs["server"]
    (states,) = update_fn.args
    rates = jax.tree.map(lambda r, p: r.reshape(-1, *p.shape)[server], states, params)
    gradients = jax.grad(loss_fn)(params, batch)
    return whole_on_all(case, updates.descend(rates, params, gradients))


def _gradients_of_others(sizes: Sizes) -> int:
    """Bytes of n-1 gradients."""
    return (sizes.n() - 1) * sizes.bytes("params")


_DESCEND = Function("jaxpar.contracts.updates:descend")


def _descend(rates: Any) -> Made:
    """An optimizer whose state is as large as the parameters: it is no shortcut to send it."""
    return Made(Function("functools:partial"), (_DESCEND, rates))


CONTRACT = Contract(
    kind="program",
    task="return the parameters that `server` makes of the mean gradients, on every device",
    reference=server.parameter_server_step,
    oracle=_expected_update,
    cases=(
        Case(
            "dp=4",
            {
                "loss_fn": Function("jaxpar.contracts.losses:squared_error"),
                "params": {
                    "w_in": ArraySpec((4, 6), "d f"),
                    "bias": ArraySpec((6,), "f"),
                    "w_out": ArraySpec((6,), "f"),
                },
                "batch": {
                    "inputs": ArraySpec((4 * 40, 4), "b_dp d"),
                    "targets": ArraySpec((4 * 40,), "b_dp"),
                },
                "update_fn": _descend(
                    {
                        "w_in": ArraySpec((4 * 4, 6), "d_dp f", draw="positive"),
                        "bias": ArraySpec((4 * 6,), "f_dp", draw="positive"),
                        "w_out": ArraySpec((4 * 6,), "f_dp", draw="positive"),
                    }
                ),
            },
            {"axis": "dp", "server": 3},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "loss_fn": Function("jaxpar.contracts.losses:layered_error"),
                "params": [
                    {"w": ArraySpec((5, 6), "d f"), "scale": ArraySpec((6,), "f")},
                    {"w": ArraySpec((6, 3), "f d")},
                ],
                "batch": (
                    ArraySpec((3 * 60, 5), "b_fsdp d"),
                    ArraySpec((3 * 60, 3), "b_fsdp d"),
                ),
                "update_fn": _descend(
                    [
                        {
                            "w": ArraySpec((3 * 5, 6), "d_fsdp f", draw="positive"),
                            "scale": ArraySpec((3 * 6,), "f_fsdp", draw="positive"),
                        },
                        {"w": ArraySpec((3 * 6, 3), "f_fsdp d", draw="positive")},
                    ]
                ),
            },
            {"axis": "fsdp", "server": 1},
        ),
    ),
    hidden=(
        Case(
            "pp=2,cp=5",
            {
                "loss_fn": Function("jaxpar.contracts.losses:squared_error"),
                "params": {
                    "w_in": ArraySpec((5, 7), "d f"),
                    "bias": ArraySpec((7,), "f"),
                    "w_out": ArraySpec((7,), "f"),
                },
                "batch": {
                    "inputs": ArraySpec((5 * 32, 5), "b_cp d"),
                    "targets": ArraySpec((5 * 32,), "b_cp"),
                },
                "update_fn": _descend(
                    {
                        "w_in": ArraySpec((5 * 5, 7), "d_cp f", draw="positive"),
                        "bias": ArraySpec((5 * 7,), "f_cp", draw="positive"),
                        "w_out": ArraySpec((5 * 7,), "f_cp", draw="positive"),
                    }
                ),
            },
            {"axis": "cp", "server": 2},
        ),
    ),
    communication=Communication(
        "permutes and gathers only, no all-reduce; each way, to the server and back, at most n-1 "
        "times the bytes of params",
        forward=(
            (
                Limit(("permute",), "axis", _gradients_of_others),  # in and out are counted apart
                Limit(("all_gather",), "axis", _gradients_of_others),
            ),
            (Limit(("all_gather",), "axis", lambda s: 2 * _gradients_of_others(s)),),
        ),
    ),
    imports=("jaxpar.collectives.gather", "jaxpar.collectives.tree_broadcast"),
    hints=(
        "Three steps: gradients to the server, their mean through update_fn, the result to all. "
        "Every device runs all of it, but only what the server computes may count.",
        "lax.pcast(params, axis, to='varying') first, so that each device's gradients are its own. "
        "gather leaves all of them on the server, [n, ...]; the mean is over dim 0.",
        "tree_broadcast(leaf, axis=axis, root=server) for each leaf of what update_fn returns; "
        "jax.tree.map goes through the leaves.",
    ),
    minimal="n-1 gradients come together on one device, and the result goes to n-1. A tree adds up "
    "on the way, and ceil(log2 n) enter the server; without a server, an all-reduce sends 2(n-1)/n "
    "on each device.",
    harder="Keep each half of the parameters on a server of its own: half the bytes through each.",
)


Loss = Callable[[Any, Any], Array]


Update = Callable[[Any, Any], Any]


def _local(loss_fn: Loss, params: Any, batch: Any, axis: str) -> Any:
    """The gradient of this device's part alone."""
    return jax.grad(loss_fn)(lax.pcast(params, axis, to="varying"), batch)


def _gather(tree: Any, axis: str, root: int) -> Any:
    return jax.tree.map(lambda leaf: collectives.gather(leaf, axis=axis, root=root), tree)


def _mean_on(root: int, tree: Any, axis: str) -> Any:
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), _gather(tree, axis, root))


def _to_all(tree: Any, axis: str, root: int) -> Any:
    return jax.tree.map(lambda leaf: collectives.tree_broadcast(leaf, axis=axis, root=root), tree)


def _updated(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, axis: str, server: int
) -> Any:
    """The new parameters; right on the server."""
    return update_fn(params, _mean_on(server, _local(loss_fn, params, batch, axis), axis))


@wrong("values")
def server_is_zero(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """Device 0 is always taken for the server; use `server`."""
    return _to_all(_updated(loss_fn, params, batch, update_fn, axis, 0), axis, 0)


@wrong("values")
def updates_for_itself(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """Every device returns what update_fn gives on it; only the server's result counts, and must be
    sent to all."""
    return update_fn(params, lax.pmean(_local(loss_fn, params, batch, axis), axis))


def _where_server(tree: Any, others: Any, axis: str, server: int) -> Any:
    is_server = lax.axis_index(axis) == server
    return jax.tree.map(lambda a, b: jnp.where(is_server, a, b), tree, others)


@wrong("values")
def server_keeps_result(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """The server returns the new parameters, and the others return zeros; send them the result."""
    updated = _updated(loss_fn, params, batch, update_fn, axis, server)
    return _where_server(updated, jax.tree.map(jnp.zeros_like, params), axis, server)


@wrong("values")
def server_alone(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """The server updates with the gradient of its own part; it needs the mean of all devices'
    gradients."""
    return _to_all(update_fn(params, _local(loss_fn, params, batch, axis)), axis, server)


@wrong("values")
def gradients_not_divided(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """The gradients are summed over the devices, by you or by JAX, and not divided by their
    number."""
    gathered = _gather(_local(loss_fn, params, batch, axis), axis, server)
    total = jax.tree.map(lambda leaf: leaf.sum(axis=0), gathered)
    return _to_all(update_fn(params, total), axis, server)


@wrong("values")
def mean_of_sums(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """JAX has already summed the gradients, because `params` were not cast, and the mean of equal
    sums is that sum: n times too large. First lax.pcast params to varying."""
    mean = _mean_on(server, jax.grad(loss_fn)(params, batch), axis)
    return _to_all(update_fn(params, mean), axis, server)


@wrong("values")
def mean_of_updates(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """Each device updates with its own gradient, and the server averages the results; average the
    gradients, and update once."""
    updated = update_fn(params, _local(loss_fn, params, batch, axis))
    return _to_all(_mean_on(server, updated, axis), axis, server)


@wrong("communication")
def all_reduce_for_server(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """The mean gradients come from an all-reduce, yours or, where `params` are not cast to varying,
    JAX's own; send each device's gradients to the server only."""
    mean = lax.pmean(_local(loss_fn, params, batch, axis), axis)
    return _to_all(update_fn(params, mean), axis, server)


def _to_all_by_all_reduce(tree: Any, axis: str, server: int) -> Any:
    zeros = jax.tree.map(jnp.zeros_like, tree)
    return lax.psum(_where_server(tree, zeros, axis, server), axis)


@wrong("communication")
def all_reduces_both_ways(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """Gradients and parameters both go by an all-reduce, which makes every device a server; send
    the gradients to the server only, and broadcast its result."""
    mean = lax.pmean(_local(loss_fn, params, batch, axis), axis)
    return _to_all_by_all_reduce(update_fn(params, mean), axis, server)


@wrong("communication")
def back_by_all_reduce(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """The result comes back by an all-reduce of zeros and one result; broadcast it from the
    server."""
    updated = _updated(loss_fn, params, batch, update_fn, axis, server)
    return _to_all_by_all_reduce(updated, axis, server)


@wrong("communication")
def batch_to_server(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    """The batch is sent to the server, which computes all gradients itself; let each device compute
    its own, and send these."""
    whole = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), _gather(batch, axis, server)
    )
    return _to_all(update_fn(params, _local(loss_fn, params, whole, axis)), axis, server)
