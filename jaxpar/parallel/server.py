"""Data parallelism through one device: all gradients go to it, all parameters come from it.

`loss_fn(params, batch)` is the mean loss over the examples of `batch`, and `update_fn(params,
gradients)` gives the new parameters. What goes to or from one device is copied in permutes of one
pair each: their bytes are those through this device.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, PyTree, Shaped

from jaxpar.mesh import check_chunks, check_root


def single_master_gradients(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    batch: PyTree[Shaped[Array, "n ..."]],
    *,
    axis: str,
    master: int,
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The mean loss and gradient on the master, zeros elsewhere, as PyTorch's DataParallel does it.

    `params` and `batch` count on the master only. It sends every device the parameters and one
    chunk of the batch, and each device sends loss and gradient of its chunk back.

    Math: loss = (sum_j loss_fn(params, batch[j])) / n; gradient = its derivative by params
    Comm:
        forward: permute(axis) (n-1)*(2*params+batch/n+1)
        backward: permute(axis) (n-1)*(2*params+1)
    Memory: params+1
    Source: Li et al. 2020 (PyTorch Distributed), section 2.2

    Raises:
        ValueError: a leaf of `batch` is not [n, ...], or the axis has no device `master`.
    """
    n = check_root("single_master_gradients", master, axis)
    for leaf in jax.tree.leaves(batch):
        check_chunks("single_master_gradients, in batch", leaf, axis)
    params = _from_root(lambda j: params, axis, master)
    chunk = _from_root(lambda j: jax.tree.map(lambda leaf: leaf[j], batch), axis, master)
    total = _sum_on_root(jax.value_and_grad(loss_fn)(params, chunk), axis, master)
    return jax.tree.map(lambda leaf: leaf / n, total)


def parameter_server_step(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    batch: PyTree[Array],
    update_fn: Callable[[Any, Any], Any],
    *,
    axis: str,
    server: int,
) -> PyTree[Array]:
    """The new parameters, on every device: the server makes them from the mean gradients.

    `params` are equal on all devices of the axis, and typed so; `batch` is this device's part.
    `update_fn(params, gradients)` counts on the server only, where the optimizer's state is; what
    it gives on another device is of no use.

    Math: y = update_fn(params, (sum_j gradients_j) / n), as the server computes it
    Comm:
        forward: permute(axis) 2*(n-1)*params
        backward: permute(axis) 2*(n-1)*params + all_reduce(axis) params
    Memory: params
    Source: Li et al. 2014 (Scaling Distributed Machine Learning with the Parameter Server)

    Raises:
        ValueError: the axis has no device `server`.
    """
    n = check_root("parameter_server_step", server, axis)
    params = lax.pcast(params, axis, to="varying")
    gradients = jax.grad(loss_fn)(params, batch)
    mean = jax.tree.map(lambda leaf: leaf / n, _sum_on_root(gradients, axis, server))
    updated = update_fn(params, mean)
    return _from_root(lambda j: updated, axis, server)


def stale_server(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    batches: PyTree[Shaped[Array, "m ..."]],
    update_fn: Callable[[Any, Any], Any],
    *,
    staleness: int,
) -> tuple[PyTree[Array], Float[Array, " m"]]:
    """The parameters and losses of m updates by an asynchronous server, simulated on one device.

    Workers take turns. A gradient is computed at the parameters that its worker fetched, and by the
    time it arrives the server has made `staleness` updates: n - 1 for n workers of equal speed.

    Math: p[t+1] = update_fn(p[t], gradient of loss_fn(p[max(t-staleness, 0)], batches[t]))
    Comm:
        forward: nothing
        backward: nothing
    Memory: params+m
    Source: Langford, Smola and Zinkevich 2009 (Slow Learners are Fast), algorithm 1

    Raises:
        ValueError: `staleness` is negative.
    """
    if staleness < 0:
        raise ValueError(f"stale_server: staleness {staleness}; use 0 (in step) or more updates")

    def update(history: PyTree[Array], batch: PyTree[Array]) -> tuple[PyTree[Array], Array]:
        oldest, newest = (jax.tree.map(lambda leaf, i=i: leaf[i], history) for i in (0, -1))
        loss, gradients = jax.value_and_grad(loss_fn)(oldest, batch)
        updated = update_fn(newest, gradients)
        return jax.tree.map(lambda h, new: jnp.append(h[1:], new[None], 0), history, updated), loss

    # The last staleness + 1 parameters, the newest at the end.
    history = jax.tree.map(lambda leaf: jnp.stack([leaf] * (staleness + 1)), params)
    history, losses = lax.scan(update, history, batches)
    return jax.tree.map(lambda leaf: leaf[-1], history), losses


def _from_root(parts: Callable[[int], PyTree[Array]], axis: str, root: int) -> PyTree[Array]:
    """The root's parts(j), on device j."""
    mine = _only_on(root, parts(root), axis)
    for j in _others(axis, root):
        arrived = lax.ppermute(parts(j), axis, [(root, j)])  # zeros on all but device j
        mine = jax.tree.map(jnp.add, mine, arrived)
    return mine


def _sum_on_root(tree: PyTree[Array], axis: str, root: int) -> PyTree[Array]:
    """The sum of every device's arrays, on the root; zeros elsewhere."""
    total = tree
    for j in _others(axis, root):
        total = jax.tree.map(jnp.add, total, lax.ppermute(tree, axis, [(j, root)]))
    return _only_on(root, total, axis)


def _only_on(root: int, tree: PyTree[Array], axis: str) -> PyTree[Array]:
    is_root = lax.axis_index(axis) == root
    return jax.tree.map(lambda leaf: jnp.where(is_root, leaf, jnp.zeros_like(leaf)), tree)


def _others(axis: str, root: int) -> list[int]:
    return [j for j in range(lax.axis_size(axis)) if j != root]
