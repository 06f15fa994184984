"""Contract of lesson 05: the parameter server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from jaxpar.contracts import parameter_server_mistakes, updates
from jaxpar.contracts.base import Communication, Contract, Expected, Limit
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import Array, Case, Function, Made, Sizes
from jaxpar.parallel import server


def _updated(
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


PARAMETER_SERVER_STEP = Contract(
    id="parameter_server_step",
    kind="program",
    task="return the parameters that `server` makes of the mean gradients, on every device",
    reference=server.parameter_server_step,
    oracle=_updated,
    cases=(
        Case(
            "dp=4",
            {
                "loss_fn": Function("jaxpar.contracts.losses:squared_error"),
                "params": {
                    "w_in": Array((4, 6), "d f"),
                    "bias": Array((6,), "f"),
                    "w_out": Array((6,), "f"),
                },
                "batch": {
                    "inputs": Array((4 * 40, 4), "b_dp d"),
                    "targets": Array((4 * 40,), "b_dp"),
                },
                "update_fn": _descend(
                    {
                        "w_in": Array((4 * 4, 6), "d_dp f", draw="positive"),
                        "bias": Array((4 * 6,), "f_dp", draw="positive"),
                        "w_out": Array((4 * 6,), "f_dp", draw="positive"),
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
                    {"w": Array((5, 6), "d f"), "scale": Array((6,), "f")},
                    {"w": Array((6, 3), "f d")},
                ],
                "batch": (
                    Array((3 * 60, 5), "b_fsdp d"),
                    Array((3 * 60, 3), "b_fsdp d"),
                ),
                "update_fn": _descend(
                    [
                        {
                            "w": Array((3 * 5, 6), "d_fsdp f", draw="positive"),
                            "scale": Array((3 * 6,), "f_fsdp", draw="positive"),
                        },
                        {"w": Array((3 * 6, 3), "f_fsdp d", draw="positive")},
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
                    "w_in": Array((5, 7), "d f"),
                    "bias": Array((7,), "f"),
                    "w_out": Array((7,), "f"),
                },
                "batch": {
                    "inputs": Array((5 * 32, 5), "b_cp d"),
                    "targets": Array((5 * 32,), "b_cp"),
                },
                "update_fn": _descend(
                    {
                        "w_in": Array((5 * 5, 7), "d_cp f", draw="positive"),
                        "bias": Array((5 * 7,), "f_cp", draw="positive"),
                        "w_out": Array((5 * 7,), "f_cp", draw="positive"),
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
    mistakes=parameter_server_mistakes.PARAMETER_SERVER_STEP,
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

CONTRACTS = (PARAMETER_SERVER_STEP,)
