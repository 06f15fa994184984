"""Data parallelism through one device, to which all gradients go and from which parameters come.

`loss_fn(params, batch)` is the mean loss over the examples of `batch`, and `update_fn(params,
gradients)` returns the new parameters. What one device sends to or receives from all others is a
permute of one pair for each of them, so that the bytes of the permutes are those of this device.
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
    """The mean loss and gradient on the master, computed as PyTorch's DataParallel computes them.

    Only the `params` and the `batch` of the master are used. It sends every device the parameters
    and one chunk of the batch, and each device sends the loss and the gradient of its chunk back.
    The other devices return zeros.

    Math: loss = (sum_j loss_fn(params, batch[j])) / n; gradient = d loss / d params
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
    params = _send_from_root(lambda j: params, axis, master)
    chunk = _send_from_root(lambda j: jax.tree.map(lambda leaf: leaf[j], batch), axis, master)
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
    """The new parameters, on every device, as the server computes them from the mean gradients.

    `params` are equal on all devices of the axis, and typed so; `batch` is this device's shard.
    `update_fn(params, gradients)` matters only on the server, which holds the optimizer's state;
    its results on the other devices are not used, and may be NaN or infinite.

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
    return _send_from_root(lambda j: updated, axis, server)


def stale_server(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    batches: PyTree[Shaped[Array, "m ..."]],
    update_fn: Callable[[Any, Any], Any],
    *,
    staleness: int,
) -> tuple[PyTree[Array], Float[Array, " m"]]:
    """The parameters and losses of m updates by an asynchronous server, simulated on one device.

    The workers take turns. A worker computes a gradient at the parameters that it has fetched; by
    the time the gradient arrives, the server has made `staleness` updates, which is n - 1 for n
    workers of equal speed.

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
        fetched = jax.tree.map(lambda leaf: leaf[0], history)
        newest = jax.tree.map(lambda leaf: leaf[-1], history)
        loss, gradients = jax.value_and_grad(loss_fn)(fetched, batch)
        updated = update_fn(newest, gradients)
        return jax.tree.map(lambda h, new: jnp.append(h[1:], new[None], 0), history, updated), loss

    # The parameters of the last staleness + 1 updates, the newest at the end.
    history = jax.tree.map(lambda leaf: jnp.stack([leaf] * (staleness + 1)), params)
    history, losses = lax.scan(update, history, batches)
    return jax.tree.map(lambda leaf: leaf[-1], history), losses


def _send_from_root(parts: Callable[[int], PyTree[Array]], axis: str, root: int) -> PyTree[Array]:
    """Sends the root's parts(j) to each device j, and returns what this device has received."""
    received = _zero_except_on(root, parts(root), axis)
    for j in _devices_except(root, axis):
        arrived = lax.ppermute(parts(j), axis, [(root, j)])  # zeros on all devices except j
        received = jax.tree.map(jnp.add, received, arrived)
    return received


def _sum_on_root(tree: PyTree[Array], axis: str, root: int) -> PyTree[Array]:
    """Sums the leaves over the devices, on the root; the other devices return zeros."""
    total = tree
    for j in _devices_except(root, axis):
        total = jax.tree.map(jnp.add, total, lax.ppermute(tree, axis, [(j, root)]))
    return _zero_except_on(root, total, axis)


def _zero_except_on(root: int, tree: PyTree[Array], axis: str) -> PyTree[Array]:
    is_root = lax.axis_index(axis) == root
    return jax.tree.map(lambda leaf: jnp.where(is_root, leaf, jnp.zeros_like(leaf)), tree)


def _devices_except(root: int, axis: str) -> list[int]:
    return [j for j in range(lax.axis_size(axis)) if j != root]
