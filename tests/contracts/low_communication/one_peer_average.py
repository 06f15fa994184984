"""Answers to one_peer_average: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from jaxpar.mesh import check_power_of_two
from tests.contracts.answers import right


def _distance(axis, step):
    n = check_power_of_two("answer", axis)
    return 0 if n == 1 else 1 << (step % int(math.log2(n)))


def _averaged(params, axis, distance):
    return jax.tree.map(lambda leaf: (leaf + hop(leaf, axis, distance)) / 2, params)


@right
def by_a_list_of_distances(params, *, axis, step):
    n = lax.axis_size(axis)
    distances = [d for d in (1, 2, 4, 8, 16, 32, 64) if d < n]
    if sum(distances) != n - 1:
        raise ValueError(f"{n} devices")
    return _averaged(params, axis, distances[step % len(distances)]) if distances else params


@right
def halved_before_they_are_sent(params, *, axis, step):
    distance = _distance(axis, step)
    half = jax.tree.map(lambda leaf: leaf / 2, params)
    return jax.tree.map(lambda leaf: leaf + hop(leaf, axis, distance), half)


@right
def all_leaves_in_one_permute(params, *, axis, step):
    distance = _distance(axis, step)
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(params)}
    if len(dtypes) > 1:
        return _averaged(params, axis, distance)
    flat, restore = ravel_pytree(params)
    return restore((flat + hop(flat, axis, distance)) / 2)


@right
def all_leaves_in_a_call(params, *, axis, step):
    n, distance = lax.axis_size(axis), _distance(axis, step)
    if n == 1:
        return params
    arrived = lax.ppermute(params, axis, [((i - distance) % n, i) for i in range(n)])
    return jax.tree.map(lambda mine, theirs: 0.5 * mine + 0.5 * theirs, params, arrived)


@right
def wide_inside(params, *, axis, step):
    distance = _distance(axis, step)

    def mean(leaf):
        both = leaf.astype(jnp.float32) + hop(leaf, axis, distance).astype(jnp.float32)
        return (both / 2).astype(leaf.dtype)

    return jax.tree.map(mean, params)


@wrong("values")
def no_average(params, *, axis, step):
    check_power_of_two("answer", axis)
    return params


@wrong("values")
def distances_in_falling_order(params, *, axis, step):
    n = check_power_of_two("answer", axis)
    return params if n == 1 else _averaged(params, axis, n >> (1 + step % int(math.log2(n))))


@wrong("values")
def device_zero_keeps_its_own(params, *, axis, step):
    own = lax.axis_index(axis) == 0
    mean = _averaged(params, axis, _distance(axis, step))
    return jax.tree.map(lambda new, old: jnp.where(own, old, new), mean, params)


@wrong("values")
def first_leaf_only(params, *, axis, step):
    leaves, structure = jax.tree.flatten(params)
    leaves[0] = _averaged(leaves[0], axis, _distance(axis, step))
    return structure.unflatten(leaves)


@wrong("values")
def sent_in_low_precision(params, *, axis, step):
    distance = _distance(axis, step)

    def mean(leaf):
        arrived = hop(leaf.astype(jnp.bfloat16), axis, distance)
        return (leaf + arrived.astype(leaf.dtype)) / 2

    return jax.tree.map(mean, params)


@wrong("gradient")
def gradient_of_this_device_only(params, *, axis, step):
    mean = _averaged(params, axis, _distance(axis, step))
    return jax.tree.map(lambda new, old: lax.stop_gradient(new - old / 2) + old / 2, mean, params)


@wrong("communication")
def both_ways_round(params, *, axis, step):
    distance = _distance(axis, step)

    def mean(leaf):
        back = hop(leaf, axis, -distance)
        other = hop(leaf, axis, distance)
        return (leaf + jnp.where(jnp.isnan(back), back, other)) / 2

    return jax.tree.map(mean, params)


@wrong("communication")
def by_an_all_to_all(params, *, axis, step):
    n, distance = lax.axis_size(axis), _distance(axis, step)

    def mean(leaf):
        copies = jnp.broadcast_to(leaf, (n, *leaf.shape))
        arrived = lax.all_to_all(copies, axis, 0, 0)
        return (leaf + arrived[(lax.axis_index(axis) - distance) % n]) / 2

    return jax.tree.map(mean, params)


@wrong("errors")
def even_numbers_of_devices(params, *, axis, step):
    n = lax.axis_size(axis)
    if n > 1 and n % 2:
        raise ValueError(f"{n} devices")
    return _averaged(params, axis, 1 << (step % max(1, int(math.log2(n)))))


@wrong("values")
def three_distances(params, *, axis, step):
    """Those of 8 devices: 1, 2 and 4."""
    check_power_of_two("answer", axis)
    return _averaged(params, axis, 1 << (step % 3))


@wrong("values")
def twice_log2_n_distances(params, *, axis, step):
    """First forward, then backward."""
    n = check_power_of_two("answer", axis)
    m = max(1, n.bit_length() - 1)
    sign = 1 if (step // m) % 2 == 0 else -1
    return _averaged(params, axis, sign * _distance(axis, step)) if n > 1 else params


@wrong("values")
def weighted_by_step(params, *, axis, step):
    """As a running mean: the more steps, the less the other one counts."""
    distance, part = _distance(axis, step), 1 / (step + 2)
    return jax.tree.map(
        lambda leaf: ((1 - part) * leaf + part * hop(leaf, axis, distance)).astype(leaf.dtype),
        params,
    )


@wrong("communication")
def sent_twice_and_compared(params, *, axis, step):
    distance = _distance(axis, step)

    def mean(leaf):
        once, again = (hop(leaf * factor, axis, distance) for factor in (1, 2))
        return (leaf + jnp.where(again == 2 * once, once, once)) / 2 + 0 * again

    return jax.tree.map(mean, params)


@wrong("communication")
def masked_all_reduce(params, *, axis, step):
    """What the peer has is put into one row of many zeros, and all are summed."""
    n, distance = lax.axis_size(axis), _distance(axis, step)
    i = lax.axis_index(axis)

    def mean(leaf):
        rows = jnp.zeros((n, *leaf.shape), leaf.dtype).at[(i + distance) % n].set(leaf)
        return (leaf + lax.psum(rows, axis)[i]) / 2

    return jax.tree.map(mean, params)
