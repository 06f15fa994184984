"""Answers to masked_mean: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


def _total_and_count(values, mask):
    return jnp.where(mask, values, 0).sum(), mask.sum()


@right
def mean_by_inner_product(values, mask, *, axis):
    weights = mask.astype(values.dtype)
    total = jnp.vdot(jnp.where(mask, values, 0), weights)
    return lax.psum(total, axis) / lax.psum(weights.sum(), axis)


@right
def mean_in_float32(values, mask, *, axis):
    wide = jnp.where(mask, values.astype(jnp.float32), 0)
    total, count = lax.psum((wide.sum(), mask.sum(dtype=jnp.int32)), axis)
    return (total / count).astype(values.dtype)


@wrong("values")
def mean_by_product(values, mask, *, axis):
    weights = mask.astype(values.dtype)
    return lax.psum((values * weights).sum(), axis) / lax.psum(weights.sum(), axis)


@right
def mean_in_one_message(values, mask, *, axis):
    total, count = lax.psum(jnp.stack(_total_and_count(values, mask)), axis)
    return total / count


@right
def mean_of_gathered_totals(values, mask, *, axis):
    pair = jnp.stack(_total_and_count(values, mask))
    total, count = lax.all_gather(pair, axis).sum(axis=0)
    return total / count


@right
def mean_of_exchanged_totals(values, mask, *, axis):
    pair = jnp.stack(_total_and_count(values, mask))
    pairs = jnp.broadcast_to(pair, (lax.axis_size(axis), 2))
    total, count = lax.all_to_all(pairs, axis, 0, 0).sum(axis=0)
    return total / count


@right
def mean_by_two_rings(values, mask, *, axis):
    moving = sums = _total_and_count(values, mask)
    for _ in range(lax.axis_size(axis) - 1):
        moving = hop(moving, axis)
        sums = jax.tree.map(jnp.add, sums, moving)
    return sums[0] / sums[1]


@right
def mean_of_means_by_weight(values, mask, *, axis):
    count = mask.sum()
    mean = jnp.where(mask, values, 0).sum() / jnp.maximum(count, 1)
    return lax.psum(mean * count, axis) / lax.psum(count, axis)


@right
def mean_as_quotient_of_means(values, mask, *, axis):
    means = (jnp.where(mask, values, 0).mean(), mask.mean())
    total, count = lax.pmean(means, axis)
    return (total / count).astype(values.dtype)


@wrong("values")
def mean_from_empty_devices(values, mask, *, axis):
    mean = values.mean(where=mask)
    return lax.psum(mean * mask.sum(), axis) / lax.psum(mask.sum(), axis)


@wrong("values")
def mean_of_full_devices(values, mask, *, axis):
    full = lax.psum(mask.any().astype(values.dtype), axis)
    return lax.psum(jnp.where(mask, values, 0).sum(), axis) / (full * mask.size)


@wrong("values")
def mean_of_what_is_not_zero(values, mask, *, axis):
    real = values * mask
    return lax.psum(real.sum(), axis) / lax.psum(jnp.count_nonzero(real), axis)


@wrong("values")
def mean_of_whole_rows(values, mask, *, axis):
    """Takes a row for real if its first value is."""
    rows = mask.reshape(len(mask), -1)[:, 0]
    total = (values.reshape(len(values), -1).mean(axis=1) * rows).sum()
    return lax.psum(total, axis) / lax.psum(rows.sum(), axis)


@wrong("values")
def mean_over_the_first_axis(values, mask, *, axis):
    return mean_by_product(values, mask, axis="dp")


@wrong("values")
def mean_over_the_mesh(values, mask, *, axis):
    return mean_by_product(values, mask, axis=("fsdp", "tp") if axis == "fsdp" else axis)


@wrong("communication")
def mean_of_values_one_by_one(values, mask, *, axis):
    weighted = jnp.where(mask, values, 0).ravel()
    return lax.map(lambda x: lax.psum(x, axis), weighted).sum() / lax.psum(mask.sum(), axis)


@wrong("values")
def mean_in_bfloat16(values, mask, *, axis):
    return mean_by_product(values.astype(jnp.bfloat16), mask, axis=axis).astype(values.dtype)


@wrong("values")
def mean_in_float32_whatever_comes_in(values, mask, *, axis):
    return mean_in_float32(values.astype(jnp.float32), mask, axis=axis)


@wrong("values")
def mean_of_each_row_up_to_its_count(values, mask, *, axis):
    """Takes the first values of each row, as many as are real in it."""
    counts = mask.sum(axis=-1, keepdims=True)
    first = jnp.arange(mask.shape[-1]) < counts
    total = jnp.where(first, values, 0).sum()
    return lax.psum(total, axis) / lax.psum(counts.sum(), axis)


@wrong("values")
def mean_up_to_the_last_real_value(values, mask, *, axis):
    places = jnp.arange(mask.size)
    end = jnp.max(jnp.where(mask.ravel(), places + 1, 0))
    total = jnp.where(places < end, jnp.nan_to_num(values.ravel()), 0).sum()
    return lax.psum(total, axis) / lax.psum(end, axis)


@wrong("gradient")
def mean_of_positive_values(values, mask, *, axis):
    return mean_in_float32(jnp.maximum(values, 0), mask, axis=axis)


@wrong("values")
def mean_without_what_is_not_finite(values, mask, *, axis):
    """Cleans the values, and then averages those that are not zero."""
    clean = jnp.nan_to_num(values, posinf=0, neginf=0)
    return lax.psum(clean.sum(), axis) / lax.psum(jnp.count_nonzero(clean), axis)


@wrong("values")
def mean_of_rank_one_or_two(values, mask, *, axis):
    total = jnp.where(mask, values, 0).sum(axis=0)
    count = mask.sum(axis=0)
    if values.ndim > 1:
        total, count = total.sum(axis=0), count.sum(axis=0)
    return lax.psum(total, axis) / lax.psum(count, axis)


@wrong("values")
def mean_with_a_little_added_to_the_count(values, mask, *, axis):
    total, count = lax.psum(_total_and_count(values, mask), axis)
    return (total / (count + 1e-3)).astype(values.dtype)


@wrong("gradient")
def mean_with_gradient_of_a_product(values, mask, *, axis):
    """The total is clean, but the gradient comes back through what was padded."""
    fixed = lax.stop_gradient(jnp.where(mask, values, 0).sum())
    through = (values * mask).sum()
    total = fixed + jnp.nan_to_num(through - lax.stop_gradient(through))
    return lax.psum(total, axis) / lax.psum(mask.sum(), axis)


@wrong("values")
def mean_with_a_count_in_bfloat16(values, mask, *, axis):
    total, _ = _total_and_count(values, mask)
    total, count = lax.psum((total, mask.sum(dtype=jnp.bfloat16)), axis)
    return (total / count.astype(total.dtype)).astype(values.dtype)


@wrong("values")
def mean_of_a_thousand_at_most(values, mask, *, axis):
    total, count = lax.psum(_total_and_count(values, mask), axis)
    return (total / jnp.minimum(count, 1000)).astype(values.dtype)
