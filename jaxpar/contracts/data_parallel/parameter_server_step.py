"""A step in which one device, the server, updates the parameters for all."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import Case, Function, Made, Sizes, array_leaves
from jaxpar.contracts.data_parallel.common import (
    ITEM_BYTES,
    Loss,
    leaf_by_leaf,
    linear_error_args,
    nested_error_args,
    nested_params,
    own_examples_only,
    parameter_counts,
)
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.losses import (
    layered_error_args,
    layers,
    network,
    on_each_device,
    squared_error_args,
)
from jaxpar.contracts.optimizers import descend
from jaxpar.contracts.steps import enter
from jaxpar.parallel import server


def _expected_update(
    case: Case, loss_fn: Loss, params: Any, batch: Any, update_fn: partial
) -> list[Expected]:
    server = case.kwargs["server"]
    (states,) = update_fn.args
    rates = jax.tree.map(lambda r, p: r.reshape(-1, *p.shape)[server], states, params)
    gradients = jax.grad(loss_fn)(params, batch)
    return whole_on_all(case, descend(rates, params, gradients))


def _gradients_of_others(sizes: Sizes) -> int:
    """Bytes of n-1 gradients in float32."""
    return (sizes.n() - 1) * ITEM_BYTES * sum(parameter_counts(sizes))


def _descend(params: Any, n: int, axis: str) -> Made:
    """An optimizer with other rates on each device.

    Its state is as large as the parameters, so that it is no shortcut to send it.
    """
    rates = on_each_device(params, n, axis, draw="positive")
    step = Function("jaxpar.contracts.optimizers:descend")
    return Made(Function("functools:partial"), (step, rates))


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, others = pick(rng, ((5, 2), (6, 2)))
    nested = nested_params(rng)
    several = nested_error_args(nested, batch=(f"b_{axis}", (n * pick(rng, (22, 23)),)))
    alone = linear_error_args(pick(rng, (12, 13)), batch=(f"b_{axis}", (pick(rng, (14, 15)),)))
    return (
        Case(
            mesh_of(rng, **{axis: n, other: others}),
            several | {"update_fn": _descend(nested, n, axis)},
            {"axis": axis, "server": pick(rng, (2, n - 1))},
        ),
        Case(
            f"{axis}=1,{other}=2",
            alone | {"update_fn": _descend(alone["params"], 1, axis)},
            {"axis": axis, "server": 0},
        ),
    )


def _spoil_other_states(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts NaN into the state of the optimizer on all devices but the server."""
    n, server = case.sizes[case.kwargs["axis"]], case.kwargs["server"]
    count = len(list(array_leaves(case.args["update_fn"])))
    for rates in inputs[-count:]:  # dim 0 is that of the parameters, n times
        rates.reshape(n, -1)[np.arange(n) != server] = np.nan


CONTRACT = Contract(
    kind="program",
    task="return on every device the parameters that `server` computes from the mean gradients",
    reference=server.parameter_server_step,
    oracle=_expected_update,
    cases=(
        Case(
            "dp=4",
            squared_error_args(4, 6, batch=("b_dp", (4 * 40,)))
            | {"update_fn": _descend(network(4, 6), 4, "dp")},
            {"axis": "dp", "server": 3},
        ),
        Case(
            "fsdp=3,tp=2",
            layered_error_args(5, 6, 3, batch=("b_fsdp", (3 * 60,)))
            | {"update_fn": _descend(layers(5, 6, 3), 3, "fsdp")},
            {"axis": "fsdp", "server": 0},
        ),
    ),
    draw=_drawn,
    poison=_spoil_other_states,
    flops=own_examples_only(),
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
    minimal="n-1 gradients must reach one device, and its result must reach the n-1 others. A tree "
    "adds the gradients up on the way, so that only ceil(log2 n) enter the server; without a "
    "server, an all-reduce sends 2(n-1)/n of the gradients on each device.",
    harder="Keep each half of the parameters on a server of its own: only half of the bytes go "
    "through each.",
)


def _local(loss_fn, params, batch, axis):
    """The gradient of this device's shard of the batch alone."""
    return jax.grad(loss_fn)(enter(params, axis), batch)


def _gather(tree, axis, root):
    return jax.tree.map(lambda leaf: collectives.gather(leaf, axis=axis, root=root), tree)


def _mean_on_root(tree, axis, root):
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), _gather(tree, axis, root))


def _broadcast(tree, axis, root):
    return jax.tree.map(lambda leaf: collectives.tree_broadcast(leaf, axis=axis, root=root), tree)


def _updated_on_root(loss_fn, params, batch, update_fn, axis, root):
    return update_fn(params, _mean_on_root(_local(loss_fn, params, batch, axis), axis, root))


@wrong("values")
def server_is_zero(loss_fn, params, batch, update_fn, *, axis, server):
    """You always take device 0 for the server; use `server`."""
    return _broadcast(_updated_on_root(loss_fn, params, batch, update_fn, axis, 0), axis, 0)


@wrong("values")
def updates_for_itself(loss_fn, params, batch, update_fn, *, axis, server):
    """Every device returns what update_fn gives on it; only the server's result counts, and must be
    sent to all."""
    return update_fn(params, lax.pmean(_local(loss_fn, params, batch, axis), axis))


def _where_server(tree, others, axis, server):
    is_server = lax.axis_index(axis) == server
    return jax.tree.map(lambda a, b: jnp.where(is_server, a, b), tree, others)


@wrong("values")
def server_keeps_result(loss_fn, params, batch, update_fn, *, axis, server):
    """The server returns the new parameters, and the others return zeros; send them the result."""
    updated = _updated_on_root(loss_fn, params, batch, update_fn, axis, server)
    return _where_server(updated, jax.tree.map(jnp.zeros_like, params), axis, server)


@wrong("values")
def server_alone(loss_fn, params, batch, update_fn, *, axis, server):
    """The server updates with the gradient of its own shard of the batch; it needs the mean of all
    devices' gradients."""
    return _broadcast(update_fn(params, _local(loss_fn, params, batch, axis)), axis, server)


@wrong("values")
def gradients_not_divided(loss_fn, params, batch, update_fn, *, axis, server):
    """The gradients are summed over the devices, by you or by JAX, and not divided by their
    number."""
    gathered = _gather(_local(loss_fn, params, batch, axis), axis, server)
    total = jax.tree.map(lambda leaf: leaf.sum(axis=0), gathered)
    return _broadcast(update_fn(params, total), axis, server)


@wrong("values")
def mean_of_sums(loss_fn, params, batch, update_fn, *, axis, server):
    """JAX has already summed the gradients, because `params` were not cast, and the mean of equal
    sums is that sum: n times too large. First lax.pcast params to varying."""
    mean = _mean_on_root(jax.grad(loss_fn)(params, batch), axis, server)
    return _broadcast(update_fn(params, mean), axis, server)


@wrong("values")
def mean_of_updates(loss_fn, params, batch, update_fn, *, axis, server):
    """Each device updates with its own gradient, and the server averages the results; average the
    gradients, and update once."""
    updated = update_fn(params, _local(loss_fn, params, batch, axis))
    return _broadcast(_mean_on_root(updated, axis, server), axis, server)


@wrong("communication")
def all_reduce_for_server(loss_fn, params, batch, update_fn, *, axis, server):
    """The mean gradients come from an all-reduce, yours or, where `params` are not cast to varying,
    JAX's own; send each device's gradients to the server only."""
    mean = lax.pmean(_local(loss_fn, params, batch, axis), axis)
    return _broadcast(update_fn(params, mean), axis, server)


def _broadcast_by_sum(tree, axis, server):
    zeros = jax.tree.map(jnp.zeros_like, tree)
    return lax.psum(_where_server(tree, zeros, axis, server), axis)


@wrong("communication")
def all_reduces_both_ways(loss_fn, params, batch, update_fn, *, axis, server):
    """Gradients and parameters both go by an all-reduce, which makes every device a server; send
    the gradients to the server only, and broadcast its result."""
    mean = lax.pmean(_local(loss_fn, params, batch, axis), axis)
    return _broadcast_by_sum(update_fn(params, mean), axis, server)


@wrong("communication")
def back_by_all_reduce(loss_fn, params, batch, update_fn, *, axis, server):
    """The result comes back by an all-reduce of zeros and one result; broadcast it from the
    server."""
    updated = _updated_on_root(loss_fn, params, batch, update_fn, axis, server)
    return _broadcast_by_sum(updated, axis, server)


@wrong("communication")
def batch_to_server(loss_fn, params, batch, update_fn, *, axis, server):
    """The batch is sent to the server, which computes all gradients itself; let each device compute
    its own, and send these."""
    gathered = _gather(batch, axis, server)
    whole = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), gathered)
    return _broadcast(update_fn(params, _local(loss_fn, params, whole, axis)), axis, server)


@wrong("values")
def others_multiplied_by_zero(loss_fn, params, batch, update_fn, *, axis, server):
    """What the other devices compute is multiplied by 0, which NaN and infinity survive; leave it
    out with jnp.where, or send the server's result to them."""
    updated = _updated_on_root(loss_fn, params, batch, update_fn, axis, server)
    mask = lax.axis_index(axis) == server
    alone = jax.tree.map(lambda leaf: leaf * mask.astype(leaf.dtype), updated)
    gathered = lax.all_gather(alone, axis)
    return jax.tree.map(lambda leaf: leaf.sum(axis=0), gathered)


@wrong("flops")
def differentiates_leaf_by_leaf(loss_fn, params, batch, update_fn, *, axis, server):
    """You differentiate once for each leaf of params, and compute the forward pass anew each time;
    jax.grad gives the gradients of all leaves at once."""
    gradients = leaf_by_leaf(loss_fn, enter(params, axis), batch)
    mean = _mean_on_root(gradients, axis, server)
    return _broadcast(update_fn(params, mean), axis, server)
