"""Answers to bucketed_all_reduce: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _buckets(leaves, bucket_bytes):
    """Positions of the leaves of each bucket."""
    number, held, numbers = 0, 0, []
    for leaf in leaves:
        if held and held + leaf.nbytes > bucket_bytes:
            number, held = number + 1, 0
        held += leaf.nbytes
        numbers.append(number)
    return [np.flatnonzero(np.array(numbers) == k) for k in range(number + 1)]


def _reduce(gradients, buckets, mean):
    """Applies `mean` to each bucket as one array."""
    leaves, structure = jax.tree.flatten(gradients)
    for bucket in buckets:
        ends = np.cumsum([leaves[i].size for i in bucket])[:-1]
        flat = mean(jnp.concatenate([leaves[i].ravel() for i in bucket]))
        for i, part in zip(bucket, jnp.split(flat, ends), strict=True):
            leaves[i] = part.reshape(leaves[i].shape)
    return structure.unflatten(leaves)


def _each_bucket(gradients, bucket_bytes, mean):
    return _reduce(gradients, _buckets(jax.tree.leaves(gradients), bucket_bytes), mean)


@right
def buckets_divided_first(gradients, *, axis, bucket_bytes):
    n = lax.axis_size(axis)
    return _each_bucket(gradients, bucket_bytes, lambda flat: lax.psum(flat / n, axis))


@right
def buckets_sent_in_reverse(gradients, *, axis, bucket_bytes):
    buckets = _buckets(jax.tree.leaves(gradients), bucket_bytes)
    return _reduce(gradients, buckets[::-1], lambda flat: lax.pmean(flat, axis))


@right
def buckets_scattered_and_gathered(gradients, *, axis, bucket_bytes):
    n = lax.axis_size(axis)

    def mean(flat):
        padded = jnp.pad(flat, (0, -flat.size % n))
        chunk = lax.psum_scatter(padded, axis, tiled=True) / n
        return lax.all_gather(chunk, axis, tiled=True)[: flat.size]

    return _each_bucket(gradients, bucket_bytes, mean)


@right
def buckets_exchanged_and_gathered(gradients, *, axis, bucket_bytes):
    n = lax.axis_size(axis)

    def mean(flat):
        chunks = jnp.pad(flat, (0, -flat.size % n)).reshape(n, -1)
        chunks = lax.all_to_all(chunks, axis, 0, 0).astype(jnp.float32)
        chunk = chunks.mean(axis=0).astype(flat.dtype)
        return lax.all_gather(chunk, axis, tiled=True)[: flat.size]

    return _each_bucket(gradients, bucket_bytes, mean)


@right
def buckets_written_into_buffers(gradients, *, axis, bucket_bytes):
    leaves, structure = jax.tree.flatten(gradients)
    for bucket in _buckets(leaves, bucket_bytes):
        starts = np.cumsum([0, *(leaves[i].size for i in bucket)])
        buffer = jnp.zeros(starts[-1], leaves[0].dtype)
        for i, start in zip(bucket, starts, strict=False):
            buffer = lax.dynamic_update_slice(buffer, leaves[i].ravel(), (int(start),))
        buffer = lax.pmean(buffer, axis)
        for i, start in zip(bucket, starts, strict=False):
            part = lax.dynamic_slice(buffer, (int(start),), (leaves[i].size,))
            leaves[i] = part.reshape(leaves[i].shape)
    return structure.unflatten(leaves)


@right
def buckets_by_bits_of_bytes(gradients, *, axis, bucket_bytes):
    """Counts bytes by shape and dtype, and packs from the last bucket to the first."""
    leaves = jax.tree.leaves(gradients)
    buckets, left = [], -1
    for i, leaf in enumerate(leaves):
        size = int(np.prod(leaf.shape)) * leaf.dtype.itemsize
        if size > left:
            buckets.append([])
            left = bucket_bytes
        buckets[-1].append(i)
        left -= size
    return _reduce(gradients, buckets[::-1], lambda flat: lax.psum(flat, axis) / lax.psum(1, axis))


@right
def buckets_as_one_column(gradients, *, axis, bucket_bytes):
    def mean(flat):
        return lax.pmean(flat[:, None], axis)[:, 0]

    return _each_bucket(gradients, bucket_bytes, mean)


@wrong("values")
def buckets_with_an_empty_first(gradients, *, axis, bucket_bytes):
    buckets, held = [[]], 0
    for i, leaf in enumerate(jax.tree.leaves(gradients)):
        if held + leaf.nbytes > bucket_bytes:
            buckets.append([])
            held = 0
        buckets[-1].append(i)
        held += leaf.nbytes
    return _reduce(gradients, buckets, lambda flat: lax.pmean(flat, axis))


@wrong("communication")
def buckets_by_first_fit(gradients, *, axis, bucket_bytes):
    leaves, buckets = jax.tree.leaves(gradients), []
    for i, leaf in enumerate(leaves):
        room = [
            bucket
            for bucket in buckets
            if sum(leaves[j].nbytes for j in bucket) + leaf.nbytes <= bucket_bytes
        ]
        (room[0] if room else buckets).append(i if room else [i])
    return _reduce(gradients, buckets, lambda flat: lax.pmean(flat, axis))


@wrong("communication")
def buckets_of_sorted_leaves(gradients, *, axis, bucket_bytes):
    leaves = jax.tree.leaves(gradients)
    order = sorted(range(len(leaves)), key=lambda i: leaves[i].nbytes)
    buckets = _buckets([leaves[i] for i in order], bucket_bytes)
    buckets = [[order[k] for k in bucket] for bucket in buckets]
    return _reduce(gradients, buckets, lambda flat: lax.pmean(flat, axis))


@wrong("communication")
def buckets_padded_to_full(gradients, *, axis, bucket_bytes):
    def mean(flat):
        full = max(bucket_bytes // flat.dtype.itemsize, flat.size)
        return lax.pmean(jnp.pad(flat, (0, full - flat.size)), axis)[: flat.size]

    return _each_bucket(gradients, bucket_bytes, mean)


@wrong("communication")
def buckets_in_halves(gradients, *, axis, bucket_bytes):
    def mean(flat):
        halves = jnp.split(flat, [flat.size // 2])
        return jnp.concatenate([lax.pmean(half, axis) for half in halves])

    return _each_bucket(gradients, bucket_bytes, mean)


@wrong("communication")
def buckets_as_tuples(gradients, *, axis, bucket_bytes):
    leaves, structure = jax.tree.flatten(gradients)
    for bucket in _buckets(leaves, bucket_bytes):
        for i, mean in zip(bucket, lax.pmean([leaves[i] for i in bucket], axis), strict=True):
            leaves[i] = mean
    return structure.unflatten(leaves)


@wrong("communication")
def buckets_in_a_loop(gradients, *, axis, bucket_bytes):
    leaves, structure = jax.tree.flatten(gradients)
    flat = jnp.concatenate([leaf.ravel() for leaf in leaves])
    rows = jnp.pad(flat, (0, -flat.size % 5)).reshape(5, -1)
    flat = lax.map(lambda row: lax.pmean(row, axis), rows).ravel()
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = jnp.split(flat, ends)[:-1]
    return structure.unflatten([p.reshape(x.shape) for p, x in zip(parts, leaves, strict=True)])


@wrong("values")
def buckets_in_bfloat16(gradients, *, axis, bucket_bytes):
    return _each_bucket(
        gradients,
        bucket_bytes,
        lambda flat: lax.pmean(flat.astype(jnp.bfloat16), axis).astype(flat.dtype),
    )


@wrong("values")
def buckets_over_the_first_axis(gradients, *, axis, bucket_bytes):
    return _each_bucket(gradients, bucket_bytes, lambda flat: lax.pmean(flat, "dp"))


def _merged(buckets, most):
    """No more than so many buckets; the last takes the rest."""
    rest = [i for bucket in buckets[most - 1 :] for i in bucket]
    return [*buckets[: most - 1], rest] if rest else buckets


@wrong("communication")
def six_buckets_at_most(gradients, *, axis, bucket_bytes):
    buckets = _buckets(jax.tree.leaves(gradients), bucket_bytes)
    return _reduce(gradients, _merged(buckets, 6), lambda flat: lax.pmean(flat, axis))


@wrong("values")
def buckets_of_the_first_eight_leaves(gradients, *, axis, bucket_bytes):
    """Reduces no leaf after the eighth."""
    buckets = _buckets(jax.tree.leaves(gradients)[:8], bucket_bytes)
    return _reduce(gradients, buckets, lambda flat: lax.pmean(flat, axis))


@wrong("values")
def buckets_of_vectors_and_matrices(gradients, *, axis, bucket_bytes):
    def mean(leaf):
        return lax.pmean(leaf, axis) if leaf.ndim < 3 else leaf

    means = _each_bucket(gradients, bucket_bytes, lambda flat: lax.pmean(flat, axis))
    return jax.tree.map(lambda a, b: a if a.ndim < 3 else mean(b), means, gradients)


@wrong("values")
def buckets_through_float32_or_bfloat16(gradients, *, axis, bucket_bytes):
    small = {4: jnp.float32, 2: jnp.bfloat16}

    def mean(flat):
        return lax.pmean(flat.astype(small[flat.dtype.itemsize]), axis).astype(flat.dtype)

    return _each_bucket(gradients, bucket_bytes, mean)


@wrong("values")
def buckets_of_dicts_lists_and_tuples(gradients, *, axis, bucket_bytes):
    """Goes through the tree by hand."""
    leaves = iter(
        jax.tree.leaves(_each_bucket(gradients, bucket_bytes, lambda x: lax.pmean(x, axis)))
    )

    def rebuilt(tree):
        if isinstance(tree, dict):
            return {key: rebuilt(tree[key]) for key in sorted(tree)}
        if isinstance(tree, list | tuple):
            return type(tree)([rebuilt(item) for item in tree])
        return next(leaves)

    return rebuilt(gradients)


@wrong("communication")
def buckets_rounded_up_to_elements(gradients, *, axis, bucket_bytes):
    leaves = jax.tree.leaves(gradients)
    item_bytes = leaves[0].dtype.itemsize
    buckets = _buckets(leaves, -(-bucket_bytes // item_bytes) * item_bytes)
    return _reduce(gradients, buckets, lambda flat: lax.pmean(flat, axis))


@wrong("communication")
def too_large_leaf_shares_its_bucket(gradients, *, axis, bucket_bytes):
    """A leaf that is too large closes no bucket before it."""
    buckets, held = [], bucket_bytes
    for i, leaf in enumerate(jax.tree.leaves(gradients)):
        if buckets and (held + leaf.nbytes <= bucket_bytes or leaf.nbytes > bucket_bytes):
            buckets[-1].append(i)
        else:
            buckets.append([i])
            held = 0
        held += leaf.nbytes
    return _reduce(gradients, buckets, lambda flat: lax.pmean(flat, axis))


@wrong("communication")
def everything_in_one_where_devices_are_few(gradients, *, axis, bucket_bytes):
    if lax.axis_size(axis) in (8, 3):
        return _each_bucket(gradients, bucket_bytes, lambda flat: lax.pmean(flat, axis))
    every = [range(len(jax.tree.leaves(gradients)))]
    return _reduce(gradients, every, lambda flat: lax.pmean(flat, axis))
