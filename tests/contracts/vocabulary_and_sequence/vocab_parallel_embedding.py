"""Answers to vocab_parallel_embedding: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter, gathered, hop, scattered
from jaxpar.contracts.vocabulary_and_sequence.common import own_rows, own_tokens, rows_or_zeros
from tests.contracts.answers import right


@right
def embedding_of_unsigned_rows(ids, table, *, axis):
    here = (ids - lax.axis_index(axis) * len(table)).astype(jnp.uint32)
    return lax.psum(table.at[here].get(mode="fill", fill_value=0), axis)


def _with_gradient(ids, table, axis, total, into):
    """The sum by `total`, and `into(zeros, rows, gradient of each row)` as its derivative."""
    row, mine = own_tokens(ids, len(table), axis)

    def backward(_, gradient):
        rows = jnp.where(mine, row, len(table))
        return (into(jnp.zeros_like(table), rows, enter(gradient, axis)),)

    embed = jax.custom_vjp(lambda table: total(own_rows(ids, table, axis), axis))
    embed.defvjp(lambda table: (total(own_rows(ids, table, axis), axis), None), backward)
    return embed(table)


def _scattered_and_gathered(y, axis):
    flat = jnp.pad(y.ravel(), (0, -y.size % lax.axis_size(axis)))
    whole = lax.all_gather(scattered(flat, axis), axis, tiled=True, to="invarying")
    return whole[: y.size].reshape(y.shape)


@right
def embedding_with_own_gradient(ids, table, *, axis):
    def into(zeros, rows, gradient):
        return zeros.at[rows].add(gradient, mode="drop")

    return _with_gradient(ids, table, axis, _scattered_and_gathered, into)


@wrong("gradient")
def embedding_gradient_of_last_use(ids, table, *, axis):
    def into(zeros, rows, gradient):
        return zeros.at[rows].set(gradient, mode="drop")

    return _with_gradient(ids, table, axis, lax.psum, into)


@wrong("communication")
def embedding_of_travelling_table(ids, table, *, axis):
    n, i, v = lax.axis_size(axis), lax.axis_index(axis), len(table)
    y = own_rows(ids, table, axis)
    for k in range(1, n):
        table = hop(table, axis)
        here = ids - (i - k) % n * v
        y += rows_or_zeros(table, here, (here >= 0) & (here < v))
    return y


@right
def embedding_clipped(ids, table, *, axis):
    row, mine = own_tokens(ids, len(table), axis)
    rows = table[jnp.clip(row, 0, len(table) - 1)]
    return lax.psum(rows * mine[..., None].astype(rows.dtype), axis)


@right
def embedding_one_hot(ids, table, *, axis):
    row, _ = own_tokens(ids, len(table), axis)
    return lax.psum(jax.nn.one_hot(row, len(table), dtype=table.dtype) @ table, axis)


@right
def embedding_row_of_zeros(ids, table, *, axis):
    row, mine = own_tokens(ids, len(table), axis)
    padded = jnp.concatenate([table, jnp.zeros_like(table[:1])])
    return lax.psum(padded[jnp.where(mine, row, len(table))], axis)


@right
def embedding_by_division(ids, table, *, axis):
    v = len(table)
    mine = ids // v == lax.axis_index(axis)  # // rounds down: a negative id has no device
    return lax.psum(jnp.where(mine[..., None], table[ids % v], 0), axis)


@wrong("values")
def embedding_over_whole_mesh(ids, table, *, axis):
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    return lax.psum(own_rows(ids, table, axis), axes)


@wrong("values")
def embedding_of_sixteen_rows(ids, table, *, axis):
    return lax.psum(rows_or_zeros(table, *own_tokens(ids, 16, axis)), axis)


@wrong("values")
def embedding_negative_wrap(ids, table, *, axis):
    total = len(table) * lax.axis_size(axis)
    return embedding_clipped(jnp.where(ids < 0, ids + total, ids), table, axis=axis)


@wrong("gradient")
def embedding_gradient_doubled(ids, table, *, axis):
    return embedding_clipped(ids, 2 * table - lax.stop_gradient(table), axis=axis)


@wrong("communication")
def embedding_gathered_row_by_row(ids, table, *, axis):
    whole = jnp.concatenate([lax.all_gather(row[None], axis) for row in table], axis=1)
    whole = whole.reshape(-1, table.shape[1])
    safe = jnp.where((ids >= 0) & (ids < len(whole)), ids, len(whole))
    return whole.at[safe].get(mode="fill", fill_value=0)


@wrong("communication")
def embedding_scattered_and_gathered(ids, table, *, axis):
    part = own_rows(ids, table, axis)
    flat = jnp.pad(part.ravel(), (0, -part.size % lax.axis_size(axis)))
    whole = gathered(scattered(flat, axis), axis)
    return whole[: part.size].reshape(part.shape)


@right
def embedding_id_by_id(ids, table, *, axis):
    def one(i):
        row, mine = own_tokens(i, len(table), axis)
        return jnp.where(mine, lax.dynamic_index_in_dim(table, row, keepdims=False), 0)

    return lax.psum(lax.map(one, ids.ravel()).reshape(*ids.shape, -1), axis)


@right
def embedding_by_infinite_indices(ids, table, *, axis):
    """What is not this device's is out of range, and filled with zeros."""
    row, mine = own_tokens(ids, len(table), axis)
    rows = table.at[jnp.where(mine, row, len(table))].get(mode="fill", fill_value=0)
    return lax.psum(rows, axis)


def _embedding_of_ids_in(dtype):
    """A lookup of ids that lose digits in a dtype."""

    def embedding(ids, table, *, axis):
        return lax.psum(own_rows(ids.astype(dtype).astype(jnp.int32), table, axis), axis)

    return wrong("values")(embedding)


embedding_of_float16_ids = _embedding_of_ids_in(jnp.float16)
embedding_of_bfloat16_ids = _embedding_of_ids_in(jnp.bfloat16)
embedding_of_uint16_ids = _embedding_of_ids_in(jnp.uint16)


@wrong("values")
def embedding_of_ids_below_256(ids, table, *, axis):
    return lax.psum(own_rows(jnp.where(ids < 256, ids, -1), table, axis), axis)


@wrong("values")
def embedding_of_ids_with_a_batch(ids, table, *, axis):
    """Refuses a single id."""
    part = own_rows(ids.reshape(len(ids), -1), table, axis)
    return lax.psum(part, axis).reshape(*ids.shape, -1)


@wrong("values")
def embedding_of_large_ids_wrapped(ids, table, *, axis):
    total = len(table) * lax.axis_size(axis)
    return lax.psum(own_rows(jnp.where(ids < 10_000, ids, ids % total), table, axis), axis)


@wrong("values")
def embedding_of_two_float_types(ids, table, *, axis):
    """Knows float32 and bfloat16, as in the stub."""
    dtype = jnp.bfloat16 if table.dtype == jnp.bfloat16 else jnp.float32
    return lax.psum(own_rows(ids, table, axis), axis).astype(dtype)
