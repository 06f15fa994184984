"""Answers to quantize_rows: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _largest(w, axis):
    return lax.pmax(jnp.abs(w).max(axis=0), axis)


@right
def by_the_inverse(w_shard, *, axis):
    largest = _largest(w_shard, axis).astype(jnp.float32)
    inverse = jnp.where(largest == 0, 0, 127 / jnp.where(largest == 0, 1, largest))
    return jnp.round(w_shard * inverse[None]).astype(jnp.int8), largest / 127


@right
def column_by_column(w_shard, *, axis):
    largest = _largest(w_shard, axis)

    def column(w, largest):
        scale = largest.astype(jnp.float32) / 127
        codes = jnp.where(scale > 0, jnp.rint(w.astype(jnp.float32) / scale), 0)
        return codes.astype(jnp.int8), scale

    return jax.vmap(column, in_axes=(1, 0), out_axes=(1, 0))(w_shard, largest)


@right
def largest_of_both_signs(w_shard, *, axis):
    largest = lax.pmax(jnp.maximum(w_shard.max(axis=0), -w_shard.min(axis=0)), axis)
    scales = largest.astype(jnp.float32) / 127
    codes = jnp.floor(w_shard / jnp.where(scales == 0, 1, scales)[None] + 0.5)
    return codes.astype(jnp.int8), scales


@right
def clipped(w_shard, *, axis):
    scales = _largest(w_shard, axis).astype(jnp.float32) * (1 / 127)
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return jnp.clip(codes, -127, 127).astype(jnp.int8), scales


@right
def not_a_number_in_columns_of_zeros(w_shard, *, axis):
    """0 / 0 is NaN, which becomes the code 0."""
    scales = _largest(w_shard, axis).astype(jnp.float32) / 127
    return jnp.nan_to_num(jnp.round(w_shard / scales[None])).astype(jnp.int8), scales


@wrong("values")
def at_random(w_shard, *, axis):
    scales = _largest(w_shard, axis).astype(jnp.float32) / 127
    noise = jax.random.uniform(jax.random.key(0), w_shard.shape)
    codes = jnp.floor(w_shard / jnp.where(scales == 0, 1, scales)[None] + noise)
    return codes.astype(jnp.int8), scales


@wrong("values")
def powers_of_two(w_shard, *, axis):
    scales = _largest(w_shard, axis).astype(jnp.float32) / 127
    scales = jnp.where(scales == 0, 0, jnp.exp2(jnp.ceil(jnp.log2(scales))))
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return codes.astype(jnp.int8), scales


@wrong("values")
def clipped_at_seven(w_shard, *, axis):
    """Four bits."""
    scales = _largest(w_shard, axis).astype(jnp.float32) / 7
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return codes.astype(jnp.int8), scales


@wrong("values")
def ones_for_columns_of_zeros(w_shard, *, axis):
    scales = _largest(w_shard, axis).astype(jnp.float32) / 127
    scales = jnp.where(scales == 0, 1, scales)
    return jnp.round(w_shard / scales[None]).astype(jnp.int8), scales


@wrong("values")
def codes_as_floats(w_shard, *, axis):
    scales = _largest(w_shard, axis).astype(jnp.float32) / 127
    return jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None]), scales


@wrong("values")
def numbers_of_codes(w_shard, *, axis):
    scales = _largest(w_shard, axis).astype(jnp.float32) / 127
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return codes * scales[None], scales


@wrong("values")
def middle_of_the_range(w_shard, *, axis):
    """With a zero point that is never returned."""
    high = lax.pmax(w_shard.max(axis=0), axis).astype(jnp.float32)
    low = lax.pmin(w_shard.min(axis=0), axis).astype(jnp.float32)
    scales = (high - low) / 254
    codes = jnp.round((w_shard - (high + low)[None] / 2) / jnp.where(scales == 0, 1, scales)[None])
    return codes.astype(jnp.int8), scales


@wrong("values")
def unlike_over_other_axes(w_shard, *, axis):
    """One matrix on all devices of the mesh."""
    axes = jax.sharding.get_abstract_mesh().axis_names
    scales = lax.pmax(jnp.abs(w_shard).max(axis=0), axes).astype(jnp.float32) / 127
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return codes.astype(jnp.int8), scales


@wrong("values")
def squares(w_shard, *, axis):
    """From the largest square, which underflows."""
    largest = jnp.sqrt(lax.pmax((w_shard**2).max(axis=0), axis))
    scales = largest.astype(jnp.float32) / 127
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return codes.astype(jnp.int8), scales


@wrong("communication")
def in_float32(w_shard, *, axis):
    scales = _largest(w_shard.astype(jnp.float32), axis) / 127
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return codes.astype(jnp.int8), scales


@wrong("communication")
def both_ends_sent(w_shard, *, axis):
    high = lax.pmax(w_shard.max(axis=0), axis)
    low = lax.pmin(w_shard.min(axis=0), axis)
    scales = jnp.maximum(high, -low).astype(jnp.float32) / 127
    codes = jnp.round(w_shard / jnp.where(scales == 0, 1, scales)[None])
    return codes.astype(jnp.int8), scales
