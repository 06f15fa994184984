"""Wrong answers to the parameter server that people write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar import collectives
from jaxpar.contracts.base import Mistake

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


def _where_server(tree: Any, others: Any, axis: str, server: int) -> Any:
    is_server = lax.axis_index(axis) == server
    return jax.tree.map(lambda a, b: jnp.where(is_server, a, b), tree, others)


def _to_all_by_all_reduce(tree: Any, axis: str, server: int) -> Any:
    zeros = jax.tree.map(jnp.zeros_like, tree)
    return lax.psum(_where_server(tree, zeros, axis, server), axis)


def _updated(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, axis: str, server: int
) -> Any:
    """The new parameters; right on the server."""
    return update_fn(params, _mean_on(server, _local(loss_fn, params, batch, axis), axis))


def _server_is_zero(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    return _to_all(_updated(loss_fn, params, batch, update_fn, axis, 0), axis, 0)


def _updates_for_itself(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    return update_fn(params, lax.pmean(_local(loss_fn, params, batch, axis), axis))


def _server_keeps_result(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    updated = _updated(loss_fn, params, batch, update_fn, axis, server)
    return _where_server(updated, jax.tree.map(jnp.zeros_like, params), axis, server)


def _server_alone(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    return _to_all(update_fn(params, _local(loss_fn, params, batch, axis)), axis, server)


def _gradients_not_divided(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    gathered = _gather(_local(loss_fn, params, batch, axis), axis, server)
    total = jax.tree.map(lambda leaf: leaf.sum(axis=0), gathered)
    return _to_all(update_fn(params, total), axis, server)


def _mean_of_sums(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    mean = _mean_on(server, jax.grad(loss_fn)(params, batch), axis)
    return _to_all(update_fn(params, mean), axis, server)


def _mean_of_updates(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    updated = update_fn(params, _local(loss_fn, params, batch, axis))
    return _to_all(_mean_on(server, updated, axis), axis, server)


def _all_reduce_for_server(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    mean = lax.pmean(_local(loss_fn, params, batch, axis), axis)
    return _to_all(update_fn(params, mean), axis, server)


def _all_reduces_both_ways(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    mean = lax.pmean(_local(loss_fn, params, batch, axis), axis)
    return _to_all_by_all_reduce(update_fn(params, mean), axis, server)


def _back_by_all_reduce(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    updated = _updated(loss_fn, params, batch, update_fn, axis, server)
    return _to_all_by_all_reduce(updated, axis, server)


def _batch_to_server(
    loss_fn: Loss, params: Any, batch: Any, update_fn: Update, *, axis: str, server: int
) -> Any:
    whole = jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), _gather(batch, axis, server)
    )
    return _to_all(update_fn(params, _local(loss_fn, params, whole, axis)), axis, server)


PARAMETER_SERVER_STEP = (
    Mistake("server_is_zero", _server_is_zero, "values"),
    Mistake("updates_for_itself", _updates_for_itself, "values"),
    Mistake("server_keeps_result", _server_keeps_result, "values"),
    Mistake("server_alone", _server_alone, "values"),
    Mistake("gradients_not_divided", _gradients_not_divided, "values"),
    Mistake("mean_of_sums", _mean_of_sums, "values"),
    Mistake("mean_of_updates", _mean_of_updates, "values"),
    Mistake("all_reduce_for_server", _all_reduce_for_server, "communication"),
    Mistake("all_reduces_both_ways", _all_reduces_both_ways, "communication"),
    Mistake("back_by_all_reduce", _back_by_all_reduce, "communication"),
    Mistake("batch_to_server", _batch_to_server, "communication"),
)
