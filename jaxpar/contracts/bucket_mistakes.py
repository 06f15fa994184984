"""Wrong answers to the bucketed all-reduce that people write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake

Bucket = list[int]
"""Positions of its leaves in the order of `jax.tree.leaves`."""


def _fill(
    leaves: list[Array], order: Iterable[int], fits: Callable[[int, int], bool]
) -> list[Bucket]:
    """Opens a bucket where a leaf does not fit: `fits(held, more)`, in elements."""
    buckets: list[Bucket] = [[]]
    for i in order:
        held = sum(leaves[j].size for j in buckets[-1])
        if held and not fits(held, leaves[i].size):
            buckets.append([])
        buckets[-1].append(i)
    return buckets


def _reduce(gradients: Any, buckets: list[Bucket], axis: str, divisor: int | None = None) -> Any:
    """One all-reduce for each bucket; leaves in none stay local."""
    leaves, structure = jax.tree.flatten(gradients)
    for bucket in buckets:
        flat = jnp.concatenate([leaves[i].ravel() for i in bucket])
        flat = lax.psum(flat, axis) / jnp.asarray(divisor or lax.axis_size(axis), flat.dtype)
        for i in bucket:
            size, shape = leaves[i].size, leaves[i].shape
            leaves[i], flat = flat[:size].reshape(shape), flat[size:]
    return structure.unflatten(leaves)


def _right(gradients: Any, bucket_bytes: int) -> list[Bucket]:
    leaves = jax.tree.leaves(gradients)
    capacity = bucket_bytes // leaves[0].dtype.itemsize
    return _fill(leaves, range(len(leaves)), lambda held, more: held + more <= capacity)


def _sum_for_mean(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    return _reduce(gradients, _right(gradients, bucket_bytes), axis, divisor=1)


def _constant_n(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    return _reduce(gradients, _right(gradients, bucket_bytes), axis, divisor=8)


def _last_bucket_not_sent(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    return _reduce(gradients, _right(gradients, bucket_bytes)[:-1], axis)


def _unpacks_in_reverse(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    leaves, structure = jax.tree.flatten(gradients)
    for bucket in _right(gradients, bucket_bytes):
        flat = lax.pmean(jnp.concatenate([leaves[i].ravel() for i in bucket]), axis)
        for i in reversed(bucket):
            size, shape = leaves[i].size, leaves[i].shape
            leaves[i], flat = flat[:size].reshape(shape), flat[size:]
    return structure.unflatten(leaves)


def _unpacks_from_start(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    leaves, structure = jax.tree.flatten(gradients)
    for bucket in _right(gradients, bucket_bytes):
        flat = lax.pmean(jnp.concatenate([leaves[i].ravel() for i in bucket]), axis)
        for i in bucket:
            leaves[i] = flat[: leaves[i].size].reshape(leaves[i].shape)
    return structure.unflatten(leaves)


def _one_bucket(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    return _reduce(gradients, [list(range(len(jax.tree.leaves(gradients))))], axis)


def _bucket_for_each_leaf(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    return jax.tree.map(lambda leaf: lax.pmean(leaf, axis), gradients)


def _last_leaf_over(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    leaves = jax.tree.leaves(gradients)
    capacity = bucket_bytes // leaves[0].dtype.itemsize
    buckets = _fill(leaves, range(len(leaves)), lambda held, more: held < capacity)
    return _reduce(gradients, buckets, axis)


def _never_quite_full(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    leaves = jax.tree.leaves(gradients)
    capacity = bucket_bytes // leaves[0].dtype.itemsize
    buckets = _fill(leaves, range(len(leaves)), lambda held, more: held + more < capacity)
    return _reduce(gradients, buckets, axis)


def _bytes_as_elements(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    leaves = jax.tree.leaves(gradients)
    buckets = _fill(leaves, range(len(leaves)), lambda held, more: held + more <= bucket_bytes)
    return _reduce(gradients, buckets, axis)


def _last_leaf_first(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    leaves = jax.tree.leaves(gradients)
    capacity = bucket_bytes // leaves[0].dtype.itemsize
    order = reversed(range(len(leaves)))
    return _reduce(gradients, _fill(leaves, order, lambda a, b: a + b <= capacity), axis)


def _cuts_leaves(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    leaves, structure = jax.tree.flatten(gradients)
    flat = jnp.concatenate([leaf.ravel() for leaf in leaves])
    step = bucket_bytes // flat.dtype.itemsize
    parts = [lax.pmean(flat[start : start + step], axis) for start in range(0, flat.size, step)]
    flat = jnp.concatenate(parts)
    for i, leaf in enumerate(leaves):
        leaves[i], flat = flat[: leaf.size].reshape(leaf.shape), flat[leaf.size :]
    return structure.unflatten(leaves)


MISTAKES = (
    Mistake("sum_for_mean", _sum_for_mean, "values"),
    Mistake("constant_n", _constant_n, "values"),
    Mistake("last_bucket_not_sent", _last_bucket_not_sent, "values"),
    Mistake("unpacks_in_reverse", _unpacks_in_reverse, "values"),
    Mistake("unpacks_from_start", _unpacks_from_start, "values"),
    Mistake("one_bucket", _one_bucket, "communication"),
    Mistake("bucket_for_each_leaf", _bucket_for_each_leaf, "communication"),
    Mistake("last_leaf_over", _last_leaf_over, "communication"),
    Mistake("never_quite_full", _never_quite_full, "communication"),
    Mistake("bytes_as_elements", _bytes_as_elements, "communication"),
    Mistake("last_leaf_first", _last_leaf_first, "communication"),
    Mistake("cuts_leaves", _cuts_leaves, "communication"),
)
