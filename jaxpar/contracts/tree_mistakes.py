"""Wrong answers to the exercises of lesson 03 on trees and doubling that people write."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import Mistake


def _send(x: jax.Array, axis: str, root: int, senders: Sequence[int], by: int) -> jax.Array:
    """What arrives when the devices at these places behind the root send `by` places on."""
    n = lax.axis_size(axis)
    pairs = [((root + p) % n, (root + p + by) % n) for p in senders]
    return lax.ppermute(x, axis, pairs)


def _keep(x: jax.Array, received: jax.Array, place: jax.Array, held: int) -> jax.Array:
    """What arrived, on the devices that it was sent to."""
    return jnp.where((held <= place) & (place < 2 * held), received, x)


def _distances(n: int) -> list[int]:
    """1, 2, 4, ... below n."""
    return [1 << k for k in range((n - 1).bit_length())]


def _behind(axis: str, root: int) -> jax.Array:
    return (lax.axis_index(axis) - root) % lax.axis_size(axis)


def _tree(x: jax.Array, axis: str, root: int, place: jax.Array) -> jax.Array:
    n = lax.axis_size(axis)
    for held in _distances(n):
        senders = range(min(held, n - held))
        x = _keep(x, _send(x, axis, root, senders, held), place, held)
    return x


def _root_is_zero(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return _tree(x, axis, 0, _behind(axis, 0))


def _place_from_zero(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return _tree(x, axis, root, lax.axis_index(axis))


def _zeros_without_source(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    n = lax.axis_size(axis)
    for held in _distances(n):
        x = _send(x, axis, root, range(min(held, n - held)), held)
    return x


def _adds_what_arrives(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    n = lax.axis_size(axis)
    for held in _distances(n):
        x = x + _send(x, axis, root, range(min(held, n - held)), held)
    return x


def _assumes_power_of_two(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    n, place = lax.axis_size(axis), _behind(axis, root)
    for k in range(n.bit_length() - 1):
        x = _keep(x, _send(x, axis, root, range(1 << k), 1 << k), place, 1 << k)
    return x


def _only_root_sends(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    place = _behind(axis, root)
    for held in _distances(lax.axis_size(axis)):
        x = jnp.where(place == held, _send(x, axis, root, [0], held), x)
    return x


def _tree_cuts_gradient(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    n, place = lax.axis_size(axis), _behind(axis, root)
    for held in _distances(n):
        received = _send(lax.stop_gradient(x), axis, root, range(min(held, n - held)), held)
        x = _keep(x, received, place, held)
    return x


def _root_sends_to_each(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    place = _behind(axis, root)
    for p in range(1, lax.axis_size(axis)):
        x = jnp.where(place == p, _send(x, axis, root, [0], p), x)
    return x


def _chain_for_tree(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    place = _behind(axis, root)
    for p in range(1, lax.axis_size(axis)):
        x = jnp.where(place == p, _send(x, axis, root, [p - 1], 1), x)
    return x


def _masked_sum(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    is_root = lax.axis_index(axis) == root
    return lax.psum(jnp.where(is_root, x, jnp.zeros_like(x)), axis)


def _gathers_for_root(x: jax.Array, *, axis: str, root: int) -> jax.Array:
    return lax.all_gather(x, axis)[root]


def _shift(x: jax.Array, axis: str, by: int) -> jax.Array:
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, (j + by) % n) for j in range(n)])


def _same_partner(x: jax.Array, *, axis: str) -> jax.Array:
    for _ in _distances(lax.axis_size(axis)):
        x = x + _shift(x, axis, 1)
    return x


def _distances_by_one(x: jax.Array, *, axis: str) -> jax.Array:
    for k, _ in enumerate(_distances(lax.axis_size(axis)), start=1):
        x = x + _shift(x, axis, k)
    return x


def _three_steps(x: jax.Array, *, axis: str) -> jax.Array:
    for distance in (1, 2, 4):
        x = x + _shift(x, axis, distance)
    return x


def _sends_first_x_only(x: jax.Array, *, axis: str) -> jax.Array:
    total = x
    for distance in _distances(lax.axis_size(axis)):
        total = total + _shift(x, axis, distance)
    return total


def _one_of_each_pair_sends(x: jax.Array, *, axis: str) -> jax.Array:
    n = lax.axis_size(axis)
    for distance in _distances(n):
        pairs = [(j, j ^ distance) for j in range(n) if j & distance]
        x = x + lax.ppermute(x, axis, pairs)
    return x


def _keeps_partners(x: jax.Array, *, axis: str) -> jax.Array:
    for distance in _distances(lax.axis_size(axis)):
        x = _shift(x, axis, distance)
    return x


def _doubling_cuts_gradient(x: jax.Array, *, axis: str) -> jax.Array:
    for distance in _distances(lax.axis_size(axis)):
        x = x + lax.stop_gradient(_shift(x, axis, distance))
    return x


def _any_size(x: jax.Array, *, axis: str) -> jax.Array:
    for distance in _distances(lax.axis_size(axis)):
        x = x + _shift(x, axis, distance)
    return x


def _ring_of_whole_x(x: jax.Array, *, axis: str) -> jax.Array:
    total = x
    for _ in range(lax.axis_size(axis) - 1):
        x = _shift(x, axis, 1)
        total = total + x
    return total


def _one_all_reduce(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.psum(x, axis)


def _gathers_to_sum(x: jax.Array, *, axis: str) -> jax.Array:
    return lax.all_gather(x, axis).sum(axis=0)


TREE_BROADCAST = (
    Mistake("root_is_zero", _root_is_zero, "values"),
    Mistake("place_from_zero", _place_from_zero, "values"),
    Mistake("zeros_without_source", _zeros_without_source, "values"),
    Mistake("adds_what_arrives", _adds_what_arrives, "values"),
    Mistake("assumes_power_of_two", _assumes_power_of_two, "values"),
    Mistake("only_root_sends", _only_root_sends, "values"),
    Mistake("tree_cuts_gradient", _tree_cuts_gradient, "gradient"),
    Mistake("root_sends_to_each", _root_sends_to_each, "communication"),
    Mistake("chain_for_tree", _chain_for_tree, "communication"),
    Mistake("masked_sum", _masked_sum, "communication"),
    Mistake("gathers_for_root", _gathers_for_root, "communication"),
)
RECURSIVE_DOUBLING_ALL_REDUCE = (
    Mistake("same_partner", _same_partner, "values"),
    Mistake("distances_by_one", _distances_by_one, "values"),
    Mistake("three_steps", _three_steps, "values"),
    Mistake("sends_first_x_only", _sends_first_x_only, "values"),
    Mistake("one_of_each_pair_sends", _one_of_each_pair_sends, "values"),
    Mistake("keeps_partners", _keeps_partners, "values"),
    Mistake("doubling_cuts_gradient", _doubling_cuts_gradient, "gradient"),
    Mistake("ring_of_whole_x", _ring_of_whole_x, "communication"),
    Mistake("one_all_reduce", _one_all_reduce, "communication"),
    Mistake("gathers_to_sum", _gathers_to_sum, "communication"),
    Mistake("any_size", _any_size, "errors"),
)
