"""Vocabulary parallelism: the embedding, the head and the logits are split over the vocabulary.

Device i of n has the tokens i*v/n to (i+1)*v/n - 1. It holds these rows of the embedding [v, d] and
these columns of the head [d, v]. No device ever holds all logits of a position.
"""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from jaxpar import nn


def partial_embedding(
    ids: Int[Array, "*b"], table: Float[Array, "v_tp d"], *, axis: str
) -> Float[Array, "*b d"]:
    """Looks up the rows of the tokens that this device has, and returns zeros for all others.

    The sum over the devices is the embedding; sequence parallelism needs only a shard of that sum.

    Math: y = table[ids - i*v] where 0 <= ids - i*v < v, else 0, on device i, which has v tokens
    Comm:
        forward: nothing
        backward: nothing
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (input embedding)
    """
    local_ids, is_local = _local_ids(ids, len(table), axis)
    return jnp.where(is_local[..., None], nn.embed(table, local_ids), 0)


def vocab_parallel_embedding(
    ids: Int[Array, "*b"], table: Float[Array, "v_tp d"], *, axis: str
) -> Float[Array, "*b d"]:
    """Looks up each token's row in a table whose rows are split over the devices of the axis.

    `ids` are equal on all devices, and so is the result. `table` is this device's v rows: device i
    has those of the ids i*v to (i+1)*v - 1. An id that no device has, such as a negative one, gets
    zeros.

    Math: y = [table_1, ..., table_n][ids]
    Comm:
        forward: all_reduce(axis) y
        backward: nothing
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (input embedding)
    """
    return lax.psum(partial_embedding(ids, table, axis=axis), axis)


def vocab_parallel_logits(
    x: Float[Array, "*b d"], head: Float[Array, "d v_tp"], *, axis: str
) -> Float[Array, "*b v_tp"]:
    """The logits of this device's tokens; a tied head is this device's embedding rows, transposed.

    x is equal on all devices, and typed so.

    Math: y = x @ head, where [head_1, ..., head_n] is the full head
    Comm:
        forward: nothing
        backward: all_reduce(axis) x
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (output embedding)
    """
    return nn.matmul(lax.pcast(x, axis, to="varying"), head)


def vocab_parallel_cross_entropy(
    logits_shard: Float[Array, "b t v_tp"], labels: Int[Array, "b t"], *, axis: str
) -> Float[Array, "b t"]:
    """The cross-entropy of each token, in float32, from logits that are split over the devices.

    `logits_shard` is this device's v logits of each token: device i has those of the labels i*v to
    (i+1)*v - 1. They may be too large or too small for exp. `labels` are equal on all devices, and
    so is the result.

    Math: y = log(sum_j sum exp(logits_j)) - logits[labels]
    Comm:
        forward: all_reduce(axis) 3*b*t
        backward: nothing
    Memory: b*t
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (output embedding)
    """
    logits = logits_shard.astype(jnp.promote_types(logits_shard.dtype, jnp.float32))
    # The result does not depend on which number is subtracted, so it needs no gradient.
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    total = lax.psum(jnp.exp(logits - largest[..., None]).sum(axis=-1), axis)
    local_labels, is_local = _local_ids(labels, logits.shape[-1], axis)
    found = jnp.take_along_axis(logits, local_labels[..., None], axis=-1)[..., 0]
    return jnp.log(total) + largest - lax.psum(jnp.where(is_local, found, 0), axis)


def _local_ids(ids: Array, size: int, axis: str) -> tuple[Int[Array, "*b"], Bool[Array, "*b"]]:
    """The ids relative to this device's first token, or 0 if they are not its own, and a mask."""
    local_ids = ids - lax.axis_index(axis) * size
    is_local = (local_ids >= 0) & (local_ids < size)
    return jnp.where(is_local, local_ids, 0), is_local
