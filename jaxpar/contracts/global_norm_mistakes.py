"""Wrong answers to the norm of leaves that devices share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake


def _squares(shards: Any) -> Array:
    """Of all leaves on this device."""
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(shards)), jnp.float32(0))


def _own_norm(shards: Any, *, axis: str) -> Array:
    return jnp.sqrt(_squares(shards))


def _adds_norms(shards: Any, *, axis: str) -> Array:
    return lax.psum(jnp.sqrt(_squares(shards)), axis)


def _averages_norms(shards: Any, *, axis: str) -> Array:
    return lax.pmean(jnp.sqrt(_squares(shards)), axis)


def _largest_norm(shards: Any, *, axis: str) -> Array:
    return lax.pmax(jnp.sqrt(_squares(shards)), axis)


def _averages_squares(shards: Any, *, axis: str) -> Array:
    return jnp.sqrt(lax.pmean(_squares(shards), axis))


def _root_before_sum(shards: Any, *, axis: str) -> Array:
    squares = lax.psum(jnp.stack([jnp.sum(leaf**2) for leaf in jax.tree.leaves(shards)]), axis)
    return jnp.sum(jnp.sqrt(squares))


def _no_root(shards: Any, *, axis: str) -> Array:
    return lax.psum(_squares(shards), axis)


def _squares_of_sums(shards: Any, *, axis: str) -> Array:
    return jnp.sqrt(_squares(lax.psum(shards, axis)))


def _over_whole_mesh(shards: Any, *, axis: str) -> Array:
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    return jnp.sqrt(lax.psum(_squares(shards), axes))


def _gathers_shards(shards: Any, *, axis: str) -> Array:
    return jnp.sqrt(_squares(lax.all_gather(shards, axis)))


def _adds_squares_one_by_one(shards: Any, *, axis: str) -> Array:
    squares = lax.psum(jax.tree.map(lambda leaf: leaf**2, shards), axis)
    return jnp.sqrt(sum(jnp.sum(leaf) for leaf in jax.tree.leaves(squares)))


def _leaf_by_leaf(shards: Any, *, axis: str) -> Array:
    leaves = jax.tree.leaves(shards)
    return jnp.sqrt(sum(lax.psum(jnp.sum(leaf**2), axis) for leaf in leaves))


MISTAKES = (
    Mistake("own_norm", _own_norm, "values"),
    Mistake("adds_norms", _adds_norms, "values"),
    Mistake("averages_norms", _averages_norms, "values"),
    Mistake("largest_norm", _largest_norm, "values"),
    Mistake("averages_squares", _averages_squares, "values"),
    Mistake("root_before_sum", _root_before_sum, "values"),
    Mistake("norm_without_root", _no_root, "values"),
    Mistake("squares_of_sums", _squares_of_sums, "values"),
    Mistake("norm_over_whole_mesh", _over_whole_mesh, "values"),
    Mistake("gathers_shards", _gathers_shards, "communication"),
    Mistake("adds_squares_one_by_one", _adds_squares_one_by_one, "communication"),
    Mistake("norm_leaf_by_leaf", _leaf_by_leaf, "communication"),
)
