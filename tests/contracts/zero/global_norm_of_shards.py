"""Answers to global_norm_of_shards: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


def _squares(shards):
    return optax.tree.norm(shards, squared=True)


@right
def norm_from_all_gathered_numbers(shards, *, axis):
    return jnp.linalg.norm(lax.all_gather(jnp.sqrt(_squares(shards)), axis))


@right
def norm_of_one_array(shards, *, axis):
    flat, _ = ravel_pytree(shards)
    return jnp.sqrt(lax.psum(jnp.vdot(flat, flat), axis))


@right
def norm_by_mean(shards, *, axis):
    return jnp.sqrt(lax.pmean(_squares(shards), axis) * lax.axis_size(axis))


@right
def norm_scaled_against_overflow(shards, *, axis):
    largest = lax.pmax(jnp.stack([jnp.abs(x).max() for x in jax.tree.leaves(shards)]).max(), axis)
    scaled = jax.tree.map(lambda x: x / largest, shards)
    return largest * jnp.sqrt(lax.psum(_squares(scaled), axis))


@right
def norm_by_scattered_blocks(shards, *, axis):
    mine = jnp.full(lax.axis_size(axis), _squares(shards))
    return jnp.sqrt(lax.psum_scatter(mine, axis))


@right
def norm_round_a_ring(shards, *, axis):
    passing = total = _squares(shards)
    for _ in range(lax.axis_size(axis) - 1):
        passing = hop(passing, axis)
        total += passing
    return jnp.sqrt(total)


@wrong("values")
def norm_in_bfloat16(shards, *, axis):
    low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), shards)
    return jnp.sqrt(lax.psum(_squares(low).astype(jnp.float32), axis))


@wrong("values")
def norm_as_one_element(shards, *, axis):
    return norm_of_one_array(shards, axis=axis)[None]


@wrong("communication")
def norm_with_a_number_for_each_leaf(shards, *, axis):
    squares = jnp.stack([jnp.sum(x**2) for x in jax.tree.leaves(shards)])
    return jnp.sqrt(lax.psum(squares, axis).sum())
