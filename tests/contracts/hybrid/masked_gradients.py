"""Answers to masked_gradients: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.mesh import vary
from tests.contracts.answers import right

tree_map = jax.tree.map


def _cast(tree, axes):
    return lax.pcast(tree, axes, to="varying")


def _sums(loss_fn, local, batch, mask):
    """The total of one microbatch, its count, and the gradient of the total."""

    def total(params):
        return loss_fn(params, batch).sum(where=mask)

    value, gradients = jax.value_and_grad(total)(local)
    return value, mask.sum().astype(value.dtype), gradients


def _local_sums(loss_fn, local, batches, masks, *, steps=None, zeros=None):
    """The sums of the microbatches, in a loop that counts them."""

    def add(i, total):
        new = _sums(loss_fn, local, *tree_map(lambda leaf: leaf[i], (batches, masks)))
        return tree_map(lambda t, x: t + x.astype(t.dtype), total, new)

    axes = tuple(jax.typeof(masks).manual_axis_type.varying)
    scalar = _cast(jnp.float32(0), axes)
    start = scalar, scalar, zeros or tree_map(jnp.zeros_like, local)
    return lax.fori_loop(0, steps or len(masks), add, start)


def _divided(sums, like):
    total, count, gradients = sums
    return total / count, tree_map(lambda g, p: (g / count).astype(p.dtype), gradients, like)


@right
def real_tokens_summed_by_number(loss_fn, params, batches, masks, *, axes):
    sums = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    return _divided(lax.psum(sums, axes), params)


@right
def real_tokens_counted_first(loss_fn, params, batches, masks, *, axes):
    """Each microbatch has its part of the mean, by the count of all that is known before."""
    count = lax.psum(masks.sum(), axes).astype(jnp.float32)
    local = _cast(params, axes)

    def add(mean, given):
        batch, mask = given

        def part(params):
            return jnp.where(mask, loss_fn(params, batch), 0).sum() / count

        return tree_map(jnp.add, mean, jax.value_and_grad(part)(local)), None

    start = _cast(jnp.float32(0), axes), tree_map(jnp.zeros_like, local)
    return lax.psum(lax.scan(add, start, (batches, masks))[0], axes)


@right
def real_tokens_by_the_mask_as_cotangent(loss_fn, params, batches, masks, *, axes):
    local = _cast(params, axes)

    def add(sums, given):
        batch, mask = given
        losses, pull_back = jax.vjp(lambda params: loss_fn(params, batch), local)
        (gradients,) = pull_back(mask.astype(losses.dtype))
        new = jnp.where(mask, losses, 0).sum(), mask.sum(dtype=losses.dtype), gradients
        return tree_map(jnp.add, sums, new), None

    scalar = _cast(jnp.float32(0), axes)
    start = scalar, scalar, tree_map(jnp.zeros_like, local)
    sums, _ = lax.scan(add, start, (batches, masks))
    return _divided(lax.psum(sums, axes), params)


@right
def real_tokens_by_recomputing(loss_fn, params, batches, masks, *, axes):
    @jax.checkpoint
    def total(params, given):
        batch, mask = given
        return jnp.where(mask, loss_fn(params, batch), 0).sum()

    def totals(params):
        return lax.map(lambda given: total(params, given), (batches, masks)).sum()

    value, gradients = jax.value_and_grad(totals)(_cast(params, axes))
    sums = value, masks.sum().astype(value.dtype), gradients
    return _divided(lax.psum(sums, axes), params)


@right
def real_tokens_summed_inside_the_gradient(loss_fn, params, batches, masks, *, axes):
    """The mean over the devices is differentiated as a whole, for each device's copy of params."""

    @jax.checkpoint
    def total(params, given):
        batch, mask = given
        return jnp.where(mask, loss_fn(params, batch), 0).sum()

    def mean(params):
        totals = lax.map(lambda given: total(params, given), (batches, masks))
        return lax.psum(totals.sum(), axes) / lax.psum(masks.sum(), axes)

    loss, gradients = jax.value_and_grad(mean)(_cast(params, axes))
    return loss, lax.psum(gradients, axes)


@right
def real_tokens_in_one_message(loss_fn, params, batches, masks, *, axes):
    sums = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    flat, restore = ravel_pytree(sums)
    return _divided(restore(lax.psum(flat, axes)), params)


@right
def real_tokens_scattered_and_gathered(loss_fn, params, batches, masks, *, axes):
    total, count, gradients = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    n = lax.axis_size(axes)

    def summed(leaf):
        flat = jnp.pad(leaf.ravel(), (0, -leaf.size % n))
        rows = lax.psum_scatter(flat, axes, tiled=True)
        return lax.all_gather(rows, axes, tiled=True)[: leaf.size].reshape(leaf.shape)

    return _divided((*lax.psum((total, count), axes), tree_map(summed, gradients)), params)


@right
def real_tokens_added_in_float32(loss_fn, params, batches, masks, *, axes):
    local = _cast(params, axes)
    zeros = tree_map(lambda p: jnp.zeros_like(p, dtype=jnp.float32), local)
    sums = _local_sums(loss_fn, local, batches, masks, zeros=zeros)
    return _divided(lax.psum(sums, axes), params)


@right
def real_tokens_by_weighted_device_means(loss_fn, params, batches, masks, *, axes):
    sums = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    loss, gradients = _divided((sums[0], jnp.maximum(sums[1], 1), sums[2]), params)
    share = sums[1] / lax.psum(sums[1], axes)
    return lax.psum((loss * share, tree_map(lambda g: g * share.astype(g.dtype), gradients)), axes)


@wrong("communication")
def real_tokens_over_the_whole_mesh(loss_fn, params, batches, masks, *, axes):
    every = jax.sharding.get_abstract_mesh().axis_names
    sums = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    return _divided(lax.psum(tree_map(lambda leaf: vary(leaf, every), sums), every), params)


@wrong("communication")
def real_tokens_of_gathered_gradients(loss_fn, params, batches, masks, *, axes):
    sums = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    whole = tree_map(lambda leaf: lax.all_gather(leaf, axes).sum(axis=0), sums)
    return _divided(whole, params)


@wrong("communication")
def real_tokens_with_gathered_masks(loss_fn, params, batches, masks, *, axes):
    """Counts the real tokens in the masks of all devices."""
    total, _, gradients = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    count = lax.all_gather(masks.astype(total.dtype), axes).sum()
    total, gradients = lax.psum((total, gradients), axes)
    return _divided((total, count, gradients), params)


@wrong("communication")
def real_tokens_reduced_under_a_condition(loss_fn, params, batches, masks, *, axes):
    local = _cast(params, axes)
    scalar, m = _cast(jnp.float32(0), axes), len(masks)

    def add(total, step):
        i, batch, mask = step
        total = tree_map(jnp.add, total, _sums(loss_fn, local, batch, mask))
        return lax.cond(
            i == m - 1,
            lambda total: _cast(lax.psum(total, axes), axes),
            lambda total: total,
            total,
        ), None

    start = scalar, scalar, tree_map(jnp.zeros_like, local)
    sums, _ = lax.scan(add, start, (jnp.arange(m), batches, masks))
    return _divided(sums, params)


@wrong("memory")
def real_tokens_as_one_batch(loss_fn, params, batches, masks, *, axes):
    whole = tree_map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (batches, masks))
    return _divided(lax.psum(_sums(loss_fn, _cast(params, axes), *whole), axes), params)


@wrong("flops")
def real_tokens_computed_twice(loss_fn, params, batches, masks, *, axes):
    """Once for the total and once for the count, as if the count could have a gradient."""
    local = _cast(params, axes)
    total, _, gradients = _local_sums(loss_fn, local, batches, masks)
    _, count, again = _local_sums(loss_fn, local, batches, ~masks)
    nothing = sum(jnp.sum(leaf * 0).astype(total.dtype) for leaf in jax.tree.leaves(again))
    count = masks.size - count + jnp.nan_to_num(nothing)
    return _divided(lax.psum((total, count, gradients), axes), params)


@wrong("values")
def real_tokens_of_twelve_microbatches(loss_fn, params, batches, masks, *, axes):
    few = tree_map(lambda leaf: leaf[:12], (batches, masks))
    sums = _local_sums(loss_fn, _cast(params, axes), *few)
    return _divided(lax.psum(sums, axes), params)


@wrong("values")
def real_tokens_two_microbatches_at_a_time(loss_fn, params, batches, masks, *, axes):
    def pairs(leaf):
        even = leaf[: len(leaf) // 2 * 2]
        return even.reshape(len(even) // 2, 2 * leaf.shape[1], *leaf.shape[2:])

    sums = _local_sums(loss_fn, _cast(params, axes), *tree_map(pairs, (batches, masks)))
    return _divided(lax.psum(sums, axes), params)


@wrong("values")
def real_tokens_in_bfloat16(loss_fn, params, batches, masks, *, axes):
    small = tree_map(lambda p: p.astype(jnp.bfloat16), _cast(params, axes))
    return _divided(lax.psum(_local_sums(loss_fn, small, batches, masks), axes), params)


@wrong("values")
def real_tokens_in_float32_whatever_comes_in(loss_fn, params, batches, masks, *, axes):
    wide = tree_map(lambda p: p.astype(jnp.float32), _cast(params, axes))
    return _divided(lax.psum(_local_sums(loss_fn, wide, batches, masks), axes), wide)


@wrong("values")
def real_tokens_in_the_dtype_of_the_first_leaf(loss_fn, params, batches, masks, *, axes):
    sums = lax.psum(_local_sums(loss_fn, _cast(params, axes), batches, masks), axes)
    dtype = jax.tree.leaves(params)[0].dtype
    loss, gradients = _divided(sums, params)
    return loss, tree_map(lambda g: g.astype(dtype), gradients)


@wrong("values")
def real_tokens_by_the_first_of_a_sequence(loss_fn, params, batches, masks, *, axes):
    """Takes a sequence for real if its first token is."""
    rows = jnp.broadcast_to(masks[..., :1], masks.shape)
    sums = _local_sums(loss_fn, _cast(params, axes), batches, rows)
    return _divided(lax.psum(sums, axes), params)


@wrong("values")
def real_tokens_first_in_each_sequence(loss_fn, params, batches, masks, *, axes):
    first = jnp.arange(masks.shape[-1]) < masks.sum(axis=-1, keepdims=True)
    sums = _local_sums(loss_fn, _cast(params, axes), batches, first)
    return _divided(lax.psum(sums, axes), params)


@wrong("values")
def real_tokens_as_a_mean_of_sequences(loss_fn, params, batches, masks, *, axes):
    counts = jnp.maximum(masks.sum(axis=-1, keepdims=True), 1)

    def weighted(params, given):
        batch, counts = given
        return loss_fn(params, batch) / counts

    total, _, gradients = _local_sums(weighted, _cast(params, axes), (batches, counts), masks)
    some = masks.any(axis=-1).sum().astype(total.dtype)
    return _divided(lax.psum((total, some, gradients), axes), params)


@wrong("values")
def real_tokens_with_a_little_added_to_the_count(loss_fn, params, batches, masks, *, axes):
    sums = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    total, count, gradients = lax.psum(sums, axes)
    return _divided((total, count + 1e-3, gradients), params)


@wrong("values")
def real_tokens_over_dp_and_cp(loss_fn, params, batches, masks, *, axes):
    axes = ("dp", "cp") if "dp" in axes else "fsdp"
    sums = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    return _divided(lax.psum(sums, axes), params)


@wrong("values")
def real_tokens_scaled_up_by_hand(loss_fn, params, batches, masks, *, axes):
    """Multiplies the mean of means by n, as if the launcher divided by n once more."""
    sums = _local_sums(loss_fn, _cast(params, axes), batches, masks)
    total, count, gradients = lax.psum(sums, axes)
    return _divided((total, count / lax.axis_size(axes), gradients), params)
