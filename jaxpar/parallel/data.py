"""Data parallelism: the parameters are replicated, and the batch is split over the devices."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, PyTree


def data_parallel_gradients(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    batch: PyTree[Array],
    *,
    axis: str,
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The loss and its gradient, both averaged over the devices, on every device.

    `loss_fn(params, batch)` is the mean loss of the examples in `batch`, which is this device's
    shard of all examples. `params` are equal on all devices of the axis, and typed so. Each
    gradient has the dtype of its parameter.

    Math: loss = (sum_j loss_fn(params, batch_j)) / n; gradient = d loss / d params
    Comm:
        forward: all_reduce(axis) params+1
        backward: all_reduce(axis) params
    Memory: params+1
    Source: Li et al. 2020 (PyTorch Distributed), section 3.2
    """
    # Without the cast, JAX would insert an all-reduce of the gradients where it differentiates.
    params = lax.pcast(params, axis, to="varying")
    return lax.pmean(jax.value_and_grad(loss_fn)(params, batch), axis)


def accumulate_gradients(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    microbatches: PyTree[Array],
    *,
    axis: str,
) -> tuple[Float[Array, ""], PyTree[Array]]:
    """The mean loss and gradient over the devices and over m microbatches, computed one by one.

    `loss_fn(params, batch)` is the mean loss of the examples in `batch`. `microbatches` is this
    device's shard of all examples, a pytree whose leaves are [m, ...]. `params` are equal on all
    devices of the axis, and typed so. Each gradient has the dtype of its parameter.

    Math: loss = (sum_j sum_i loss_fn(params, microbatches_j[i])) / (n*m); gradient = its derivative
    Comm:
        forward: all_reduce(axis) params+1
        backward: all_reduce(axis) params
    Memory: params+1
    Source: Li et al. 2020 (PyTorch Distributed), section 3.2.4
    """
    params = lax.pcast(params, axis, to="varying")

    def add(total: PyTree[Array], microbatch: PyTree[Array]) -> tuple[PyTree[Array], Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(params, microbatch)
        return jax.tree.map(jnp.add, total, gradients), loss

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, params), microbatches)
    gradients = jax.tree.map(lambda leaf: leaf / len(losses), total)
    return lax.pmean((losses.mean(), gradients), axis)


def bucketed_all_reduce(gradients: PyTree[Array], *, axis: str, bucket_bytes: int) -> PyTree[Array]:
    """Averages the gradients over the devices, with one all-reduce for each bucket of leaves.

    In the order of `jax.tree.leaves`, a leaf joins the current bucket if the bucket then holds at
    most `bucket_bytes`; otherwise it starts the next bucket. No leaf is split between buckets, and
    all leaves have the same dtype, in which they are sent.

    Math: y = (sum_j gradients_j) / n
    Comm:
        forward: all_reduce(axis) gradients
        backward: nothing
    Memory: gradients
    Source: Li et al. 2020 (PyTorch Distributed), section 3.2.2

    Raises:
        ValueError: the leaves have more than one dtype.
    """
    leaves, structure = jax.tree.flatten(gradients)
    dtypes = sorted({str(leaf.dtype) for leaf in leaves})
    if len(dtypes) > 1:
        raise ValueError(
            f"bucketed_all_reduce: gradients have {len(dtypes)} dtypes ({', '.join(dtypes)}); a "
            "bucket holds one; call it once for the leaves of each dtype"
        )
    buckets = _buckets(leaves, bucket_bytes)
    return structure.unflatten([mean for bucket in buckets for mean in _means(bucket, axis)])


def masked_mean(
    values: Float[Array, "*b"], mask: Bool[Array, "*b"], *, axis: str
) -> Float[Array, ""]:
    """The mean of the values whose mask is true, over all devices of the axis.

    The last batch of an epoch is padded, so that every device has the same number of values. A
    device may have none that is real, but on at least one device at least one value is. Padding may
    be anywhere, and its values do not matter, even if they are NaN or infinite. The result has the
    dtype of `values`.

    Math: y = (sum_j sum mask_j*values_j) / (sum_j sum mask_j)
    Comm:
        forward: all_reduce(axis) 2
        backward: nothing
    Memory: 1
    Source: Goyal et al. 2017 (Accurate, Large Minibatch SGD), section 3 (gradient aggregation)
    """
    total = jnp.sum(values, where=mask)
    return lax.psum(total, axis) / lax.psum(jnp.sum(mask), axis)


def _buckets(leaves: list[Array], bucket_bytes: int) -> Iterator[list[Array]]:
    """Groups consecutive leaves into buckets of at most `bucket_bytes`, or of one larger leaf."""
    bucket: list[Array] = []
    for leaf in leaves:
        if bucket and sum(other.nbytes for other in bucket) + leaf.nbytes > bucket_bytes:
            yield bucket
            bucket = []
        bucket.append(leaf)
    if bucket:
        yield bucket


def _means(bucket: list[Array], axis: str) -> Iterator[Array]:
    """The mean of each leaf over the devices, by one all-reduce of the whole bucket."""
    flat = lax.pmean(jnp.concatenate([leaf.ravel() for leaf in bucket]), axis)
    for leaf in bucket:
        yield flat[: leaf.size].reshape(leaf.shape)
        flat = flat[leaf.size :]
