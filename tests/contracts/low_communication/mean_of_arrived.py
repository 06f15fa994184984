"""Answers to mean_of_arrived: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _in_time(gradients, arrived):
    return jax.tree.map(lambda leaf: jnp.where(arrived, leaf, jnp.zeros_like(leaf)), gradients)


def _divided(total, count):
    return jax.tree.map(lambda leaf: leaf / count.astype(leaf.dtype), total)


@right
def count_in_floats(gradients, arrived, *, axis):
    count = jnp.maximum(lax.psum(jnp.where(arrived, 1.0, 0.0), axis), 1)
    return _divided(lax.psum(_in_time(gradients, arrived), axis), count)


@right
def divided_before_the_sum(gradients, arrived, *, axis):
    count = jnp.maximum(lax.psum(arrived.astype(jnp.int32), axis), 1)
    return lax.psum(_divided(_in_time(gradients, arrived), count), axis)


@right
def zeros_where_nobody_came(gradients, arrived, *, axis):
    count = lax.psum(arrived.astype(jnp.int32), axis)
    total = lax.psum(_in_time(gradients, arrived), axis)
    return jax.tree.map(
        lambda leaf: jnp.where(count > 0, leaf / jnp.maximum(count, 1).astype(leaf.dtype), leaf),
        total,
    )


@right
def by_select(gradients, arrived, *, axis):
    count = lax.psum(jnp.float32(arrived), axis)
    kept = jax.tree.map(
        lambda leaf: lax.select(jnp.broadcast_to(arrived, leaf.shape), leaf, jnp.zeros_like(leaf)),
        gradients,
    )
    total = lax.psum(kept, axis)
    return jax.tree.map(lambda leaf: (leaf / jnp.maximum(count, 1)).astype(leaf.dtype), total)


@right
def means_scaled_up(gradients, arrived, *, axis):
    part = lax.pmean(arrived.astype(jnp.float32), axis)
    mean = lax.pmean(_in_time(gradients, arrived), axis)
    safe = jnp.where(part > 0, part, 1)
    return jax.tree.map(lambda leaf: (leaf / safe).astype(leaf.dtype), mean)


@right
def count_beside_the_gradients(gradients, arrived, *, axis):
    """Where all leaves are float32, the count travels with them."""
    if {leaf.dtype for leaf in jax.tree.leaves(gradients)} != {jnp.dtype("float32")}:
        return count_in_floats(gradients, arrived, axis=axis)
    flat, restore = ravel_pytree(gradients)
    total = lax.psum(jnp.where(arrived, flat, 0), axis)
    count = lax.psum(arrived.astype(jnp.float32), axis)
    return restore(total / jnp.maximum(count, 1))


@right
def finite_before_the_product(gradients, arrived, *, axis):
    """Only late devices are said to hold what is not finite, so it may be replaced on all."""
    finite = jax.tree.map(jnp.nan_to_num, gradients)
    product = jax.tree.map(lambda leaf: leaf * arrived.astype(leaf.dtype), finite)
    count = jnp.maximum(lax.psum(arrived.astype(jnp.int32), axis), 1)
    return _divided(lax.psum(product, axis), count)


@wrong("values")
def at_least_one_counts_twice(gradients, arrived, *, axis):
    count = (
        1 + lax.psum(arrived.astype(jnp.int32), axis) - lax.pmax(arrived.astype(jnp.int32), axis)
    )
    return _divided(lax.psum(_in_time(gradients, ~arrived), axis), count)


@wrong("values")
def own_gradients_where_nobody_came(gradients, arrived, *, axis):
    count = lax.psum(arrived.astype(jnp.int32), axis)
    mean = count_in_floats(gradients, arrived, axis=axis)
    return jax.tree.map(lambda new, old: jnp.where(count > 0, new, old), mean, gradients)


@wrong("values")
def largest_of_arrived(gradients, arrived, *, axis):
    return jax.tree.map(lambda leaf: lax.pmax(leaf, axis), _in_time(gradients, arrived))


@wrong("values")
def sent_in_bfloat16(gradients, arrived, *, axis):
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), gradients)
    mean = count_in_floats(low, arrived, axis=axis)
    return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), mean, gradients)


@wrong("values")
def without_late_leaves(gradients, arrived, *, axis):
    """Only the first leaf is masked."""
    leaves, structure = jax.tree.flatten(gradients)
    kept = structure.unflatten([_in_time(leaves[0], arrived), *leaves[1:]])
    count = jnp.maximum(lax.psum(arrived.astype(jnp.int32), axis), 1)
    return _divided(lax.psum(kept, axis), count)


@wrong("communication")
def summed_twice(gradients, arrived, *, axis):
    kept = _in_time(gradients, arrived)
    count = jnp.maximum(lax.psum(arrived.astype(jnp.int32), axis), 1)
    half = jax.tree.map(lambda leaf: leaf / 2, kept)
    rest = jax.tree.map(jnp.subtract, kept, half)
    return _divided(jax.tree.map(jnp.add, lax.psum(half, axis), lax.psum(rest, axis)), count)


@wrong("communication")
def flags_and_gradients_gathered(gradients, arrived, *, axis):
    flags = lax.all_gather(arrived, axis)

    def mean(leaf):
        every = lax.all_gather(leaf, axis)
        kept = jnp.where(flags.reshape(-1, *[1] * leaf.ndim), every, 0)
        return (kept.sum(axis=0) / jnp.maximum(flags.sum(), 1)).astype(leaf.dtype)

    return jax.tree.map(mean, gradients)


@wrong("values")
def at_least_half_must_come(gradients, arrived, *, axis):
    """Where fewer than half of the devices are in time, the step is left out."""
    count = lax.psum(arrived.astype(jnp.int32), axis)
    mean = count_in_floats(gradients, arrived, axis=axis)
    enough = 2 * count >= lax.axis_size(axis)
    return jax.tree.map(lambda leaf: jnp.where(enough, leaf, 0), mean)


@wrong("values")
def not_a_number_replaced_only(gradients, arrived, *, axis):
    """NaN becomes 0 and infinity stays."""
    finite = jax.tree.map(lambda leaf: jnp.where(jnp.isnan(leaf), 0, leaf), gradients)
    product = jax.tree.map(lambda leaf: leaf * arrived.astype(leaf.dtype), finite)
    count = jnp.maximum(lax.psum(arrived.astype(jnp.int32), axis), 1)
    return _divided(lax.psum(product, axis), count)


@wrong("values")
def late_where_not_finite(gradients, arrived, *, axis):
    """Whoever holds finite numbers has arrived."""
    finite = jax.tree.map(lambda leaf: jnp.isfinite(leaf).all(), gradients)
    seen = jax.tree.reduce(jnp.logical_and, finite)
    return count_in_floats(gradients, seen, axis=axis)


@wrong("values")
def count_of_the_other_axis(gradients, arrived, *, axis):
    """The count is of the devices that hold this one's part, over all axes."""
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    count = jnp.maximum(lax.psum(arrived.astype(jnp.int32), axes), 1)
    return _divided(lax.psum(_in_time(gradients, arrived), axis), count)


@wrong("communication")
def counted_again_for_the_last(gradients, arrived, *, axis):
    """Each device sends its flag beside each row of each gradient."""

    def mean(leaf):
        kept = jnp.where(arrived, leaf, 0)
        flag = jnp.broadcast_to(arrived, (1, *leaf.shape[1:])).astype(leaf.dtype)
        total = lax.psum(jnp.concatenate([kept, flag]), axis)
        return total[:-1] / jnp.maximum(total[-1:], 1)

    return jax.tree.map(mean, gradients)
