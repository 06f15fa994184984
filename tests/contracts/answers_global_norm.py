"""Answers to the norm of what devices share: right by other ways, wrong by clever ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

tree_map = jax.tree.map


def _squares(shards):
    return optax.tree.norm(shards, squared=True)


def norm_from_all_gathered_numbers(shards, *, axis):
    return jnp.linalg.norm(lax.all_gather(jnp.sqrt(_squares(shards)), axis))


def norm_of_one_array(shards, *, axis):
    flat, _ = ravel_pytree(shards)
    return jnp.sqrt(lax.psum(jnp.vdot(flat, flat), axis))


def norm_by_mean(shards, *, axis):
    return jnp.sqrt(lax.pmean(_squares(shards), axis) * lax.axis_size(axis))


def norm_scaled_against_overflow(shards, *, axis):
    largest = lax.pmax(jnp.stack([jnp.abs(x).max() for x in jax.tree.leaves(shards)]).max(), axis)
    return largest * jnp.sqrt(lax.psum(_squares(tree_map(lambda x: x / largest, shards)), axis))


def norm_by_scattered_blocks(shards, *, axis):
    mine = jnp.full(lax.axis_size(axis), _squares(shards))
    return jnp.sqrt(lax.psum_scatter(mine, axis))


def norm_round_a_ring(shards, *, axis):
    n = lax.axis_size(axis)
    passing = total = _squares(shards)
    for _ in range(n - 1):
        passing = lax.ppermute(passing, axis, [(j, (j + 1) % n) for j in range(n)])
        total += passing
    return jnp.sqrt(total)


def norm_in_bfloat16(shards, *, axis):
    low = tree_map(lambda x: x.astype(jnp.bfloat16), shards)
    return jnp.sqrt(lax.psum(_squares(low).astype(jnp.float32), axis))


def norm_as_one_element(shards, *, axis):
    return norm_of_one_array(shards, axis=axis)[None]


def norm_by_gathering_one_array(shards, *, axis):
    return jnp.linalg.norm(lax.all_gather(ravel_pytree(shards)[0], axis).ravel())


def norm_with_a_number_for_each_leaf(shards, *, axis):
    squares = jnp.stack([jnp.sum(x**2) for x in jax.tree.leaves(shards)])
    return jnp.sqrt(lax.psum(squares, axis).sum())


def norm_in_a_loop(shards, *, axis):
    squares = jnp.stack([jnp.sum(x**2) for x in jax.tree.leaves(shards)])
    return jnp.sqrt(lax.map(lambda x: lax.psum(x, axis), squares).sum())


RIGHT = {
    "global_norm_of_shards": (
        norm_from_all_gathered_numbers,
        norm_of_one_array,
        norm_by_mean,
        norm_scaled_against_overflow,
        norm_by_scattered_blocks,
        norm_round_a_ring,
    ),
}
WRONG = {
    "global_norm_of_shards": {
        norm_in_bfloat16: "values",
        norm_as_one_element: "values",
        norm_by_gathering_one_array: "communication",
        norm_with_a_number_for_each_leaf: "communication",
        norm_in_a_loop: "communication",
    },
}
