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


def _wide(shards):
    return jax.tree.map(lambda x: x.astype(jnp.float32), shards)


def _squares(shards):
    return optax.tree.norm(_wide(shards), squared=True)


@right
def norm_from_all_gathered_numbers(shards, *, axis):
    return jnp.linalg.norm(lax.all_gather(jnp.sqrt(_squares(shards)), axis))


@right
def norm_of_one_array(shards, *, axis):
    flat, _ = ravel_pytree(_wide(shards))
    return jnp.sqrt(lax.psum(jnp.vdot(flat, flat), axis))


@right
def norm_by_mean(shards, *, axis):
    return jnp.sqrt(lax.pmean(_squares(shards), axis) * lax.axis_size(axis))


@right
def norm_scaled_against_overflow(shards, *, axis):
    largest = lax.pmax(jnp.stack([jnp.abs(x).max() for x in jax.tree.leaves(shards)]).max(), axis)
    scaled = jax.tree.map(lambda x: x / jnp.where(largest == 0, 1, largest), shards)
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


@right
def norm_of_norms(shards, *, axis):
    norms = [jnp.linalg.norm(x.astype(jnp.float32).ravel()) for x in jax.tree.leaves(shards)]
    return jnp.sqrt(lax.psum(sum(norm**2 for norm in norms), axis))


@right
def norm_with_wide_products(shards, *, axis):
    def squares(x):
        return jnp.vdot(x, x, preferred_element_type=jnp.float32)

    total = jax.tree.reduce(lambda total, x: total + squares(x), shards, jnp.float32(0))
    return jnp.sqrt(lax.psum(total, axis))


@wrong("values")
def norm_in_bfloat16(shards, *, axis):
    low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), shards)
    return jnp.sqrt(lax.psum(_squares(low).astype(jnp.float32), axis))


@wrong("values")
def norm_as_one_element(shards, *, axis):
    return norm_of_one_array(shards, axis=axis)[None]


@wrong("values")
def norm_of_eleven_leaves(shards, *, axis):
    return jnp.sqrt(lax.psum(_squares(jax.tree.leaves(shards)[:11]), axis))


@wrong("values")
def norm_by_wide_sums_of_narrow_squares(shards, *, axis):
    squares = [jnp.sum(x**2, dtype=jnp.float32) for x in jax.tree.leaves(shards)]
    return jnp.sqrt(lax.psum(sum(squares), axis))


@wrong("values")
def norm_scaled_on_each_device(shards, *, axis):
    wide = jax.tree.leaves(_wide(shards))
    largest = jnp.stack([jnp.abs(x).max() for x in wide]).max()
    squares = largest**2 * _squares([x / largest for x in wide])
    return jnp.sqrt(lax.psum(squares, axis))


@wrong("values")
def norm_with_epsilon(shards, *, axis):
    return jnp.sqrt(lax.psum(_squares(shards), axis) + 1e-8)


@wrong("values")
def norm_by_logarithms(shards, *, axis):
    logarithm = jnp.log(_squares(shards))
    largest = lax.pmax(logarithm, axis)
    return jnp.exp((largest + jnp.log(lax.psum(jnp.exp(logarithm - largest), axis))) / 2)


@wrong("values")
def norm_of_lists_and_dicts(shards, *, axis):
    """A pytree may be one array, or a tuple."""

    def squares(part):
        if isinstance(part, dict):
            return sum(squares(item) for item in part.values())
        if isinstance(part, list):
            return sum(squares(item) for item in part)
        return jnp.sum(part.astype(jnp.float32) ** 2) if hasattr(part, "astype") else 0.0

    return jnp.sqrt(lax.psum(squares(shards), axis))


@wrong("values")
def norm_over_three_dims_at_most(shards, *, axis):
    """As einsum would be written for vectors, matrices and stacks of them."""
    dims = {1: "i,i->", 2: "ij,ij->", 3: "ijk,ijk->"}
    wide = [x.astype(jnp.float32) for x in jax.tree.leaves(shards)]
    return jnp.sqrt(lax.psum(sum(jnp.einsum(dims[x.ndim], x, x) for x in wide), axis))


@wrong("communication")
def norm_with_a_number_for_each_leaf(shards, *, axis):
    squares = jnp.stack([jnp.sum(x**2) for x in jax.tree.leaves(shards)])
    return jnp.sqrt(lax.psum(squares, axis).sum())
