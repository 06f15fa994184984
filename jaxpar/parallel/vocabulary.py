"""Vocabulary parallelism: each device holds the rows of its tokens, and their logits.

Device i of n has tokens i*v/n to (i+1)*v/n - 1: of the embedding [v, d] these rows, of the head
[d, v] these columns. No device ever holds all logits of a position.
"""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int

from jaxpar import nn


def partial_embedding(
    ids: Int[Array, "*b"], table: Float[Array, "v d"], *, axis: str
) -> Float[Array, "*b d"]:
    """The rows of the tokens that this device has, and zeros for all others.

    The sum over the devices is the embedding; sequence parallelism takes only its part of it.

    Math: y_j = table_j[ids - j*v] where 0 <= ids - j*v < v, else 0, on device j; v is of the shard
    Comm:
        forward: nothing
        backward: nothing
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (input embedding)
    """
    here, mine = _own(ids, len(table), axis)
    return jnp.where(mine[..., None], nn.embed(table, here), 0)


def vocab_parallel_embedding(
    ids: Int[Array, "*b"], table: Float[Array, "v d"], *, axis: str
) -> Float[Array, "*b d"]:
    """The row of each token, of a table whose rows the devices of the axis share.

    `ids` are equal on all devices, and so is the result. `table` is this device's rows: device i
    has those of ids i*v to (i+1)*v - 1. An id that no device has (a negative one, say) gets zeros.

    Math: y = [table_1, ..., table_n][ids]
    Comm:
        forward: all_reduce(axis) y
        backward: nothing
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (input embedding)
    """
    return lax.psum(partial_embedding(ids, table, axis=axis), axis)


def vocab_parallel_logits(
    x: Float[Array, "*b d"], head: Float[Array, "d v"], *, axis: str
) -> Float[Array, "*b v"]:
    """The logits of this device's tokens; a tied head is the transposed rows of the embedding.

    x is equal on all devices, and typed so.

    Math: y = x @ head, where [head_1, ..., head_n] is the whole head
    Comm:
        forward: nothing
        backward: all_reduce(axis) x
    Memory: y
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (output embedding)
    """
    return nn.matmul(lax.pcast(x, axis, to="varying"), head)


def vocab_parallel_cross_entropy(
    logits_shard: Float[Array, "b t v"], labels: Int[Array, "b t"], *, axis: str
) -> Float[Array, "b t"]:
    """The loss of each token, of logits that the devices of the axis share; in float32.

    `logits_shard` is this device's part: device i has the logits of labels i*v to (i+1)*v - 1. They
    may be too large or too small for exp. `labels` are equal on all devices, and so is the result.

    Math: y = log(sum_j sum exp(logits_j)) - logits[labels]
    Comm:
        forward: all_reduce(axis) 3*b*t
        backward: nothing
    Memory: b*t
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3 (output embedding)
    """
    logits = logits_shard.astype(jnp.promote_types(logits_shard.dtype, jnp.float32))
    # Any number near the maximum would do, so no gradient goes through it.
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    total = lax.psum(jnp.exp(logits - largest[..., None]).sum(axis=-1), axis)
    here, mine = _own(labels, logits.shape[-1], axis)
    found = jnp.take_along_axis(logits, here[..., None], axis=-1)[..., 0]
    return jnp.log(total) + largest - lax.psum(jnp.where(mine, found, 0), axis)


def _own(ids: Array, size: int, axis: str) -> tuple[Int[Array, "*b"], Bool[Array, "*b"]]:
    """The places of ids among this device's tokens (0 for others), and which it has."""
    here = ids - lax.axis_index(axis) * size
    mine = (here >= 0) & (here < size)
    return jnp.where(mine, here, 0), mine
