"""Answers to vocabulary parallelism: right by other ways, wrong by clever ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def _rows(ids, v, axis):
    here = ids - lax.axis_index(axis) * v
    return here, (here >= 0) & (here < v)


def embedding_clipped(ids, table, *, axis):
    v = table.shape[0]
    here, mine = _rows(ids, v, axis)
    rows = table[jnp.clip(here, 0, v - 1)]
    return lax.psum(rows * mine[..., None].astype(rows.dtype), axis)


def embedding_one_hot(ids, table, *, axis):
    here, _ = _rows(ids, len(table), axis)
    return lax.psum(jax.nn.one_hot(here, len(table), dtype=table.dtype) @ table, axis)


def embedding_row_of_zeros(ids, table, *, axis):
    v = len(table)
    here, mine = _rows(ids, v, axis)
    padded = jnp.concatenate([table, jnp.zeros_like(table[:1])])
    return lax.psum(padded[jnp.where(mine, here, v)], axis)


def embedding_filled(ids, table, *, axis):
    here, mine = _rows(ids, len(table), axis)
    rows = table.at[jnp.where(mine, here, len(table))].get(mode="fill", fill_value=0)
    return lax.psum(rows, axis)


def embedding_by_division(ids, table, *, axis):
    v = len(table)
    mine = ids // v == lax.axis_index(axis)  # // rounds down: a negative id has no device
    return lax.psum(jnp.where(mine[..., None], table[ids % v], 0), axis)


def embedding_scattered_and_gathered(ids, table, *, axis):
    here, mine = _rows(ids, len(table), axis)
    part = jnp.where(mine[..., None], table[jnp.where(mine, here, 0)], 0)
    n = lax.axis_size(axis)
    flat = jnp.pad(part.ravel(), (0, -part.size % n))
    whole = lax.all_gather(lax.psum_scatter(flat, axis, tiled=True), axis, tiled=True)
    return whole[: part.size].reshape(part.shape)


def embedding_over_whole_mesh(ids, table, *, axis):
    here, mine = _rows(ids, len(table), axis)
    part = jnp.where(mine[..., None], table[jnp.where(mine, here, 0)], 0)
    return lax.psum(part, tuple(jax.sharding.get_abstract_mesh().axis_names))


def embedding_of_sixteen_rows(ids, table, *, axis):
    here, mine = _rows(ids, 16, axis)
    return lax.psum(jnp.where(mine[..., None], table[jnp.where(mine, here, 0)], 0), axis)


def embedding_wraps_outside(ids, table, *, axis):
    v = len(table)
    return embedding_clipped(ids % (v * lax.axis_size(axis)), table, axis=axis)


def embedding_negative_wrap(ids, table, *, axis):
    v = len(table)
    total = v * lax.axis_size(axis)
    return embedding_clipped(jnp.where(ids < 0, ids + total, ids), table, axis=axis)


def embedding_nothing_but_zeros(ids, table, *, axis):
    return jnp.zeros((*ids.shape, table.shape[1]), table.dtype)


def embedding_gathered_row_by_row(ids, table, *, axis):
    whole = jnp.concatenate([lax.all_gather(row[None], axis) for row in table], axis=1)
    whole = whole.reshape(-1, table.shape[1])
    safe = jnp.where((ids >= 0) & (ids < len(whole)), ids, len(whole))
    return whole.at[safe].get(mode="fill", fill_value=0)


def embedding_gradient_doubled(ids, table, *, axis):
    return embedding_clipped(ids, 2 * table - lax.stop_gradient(table), axis=axis)


def _label(logits, labels, axis):
    here, mine = _rows(labels, logits.shape[-1], axis)
    found = jnp.take_along_axis(logits, jnp.where(mine, here, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(mine, found, 0)


def loss_of_shifted_logits(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    shifted = logits - largest[..., None]
    total, label = lax.psum((jnp.exp(shifted).sum(-1), _label(shifted, labels, axis)), axis)
    return jnp.log(total) - label


def loss_of_local_log_sums(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    local = jax.nn.logsumexp(logits, axis=-1)
    largest = lax.pmax(lax.stop_gradient(local), axis)
    total = largest + jnp.log(lax.psum(jnp.exp(local - largest), axis))
    return total - lax.psum(_label(logits, labels, axis), axis)


def loss_by_one_hot(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    v = logits.shape[-1]
    hot = jax.nn.one_hot(labels - lax.axis_index(axis) * v, v)
    largest = lax.pmax(lax.stop_gradient(logits).max(axis=-1, keepdims=True), axis)
    total = lax.psum(jnp.exp(logits - largest).sum(axis=-1), axis)
    return jnp.log(total) + largest[..., 0] - lax.psum((hot * logits).sum(axis=-1), axis)


def loss_with_gradient_by_hand(logits_shard, labels, *, axis):
    def forward(logits):
        wide = logits.astype(jnp.float32)
        largest = lax.pmax(wide.max(axis=-1), axis)
        exps = jnp.exp(wide - largest[..., None])
        total = lax.psum(exps.sum(axis=-1), axis)
        label = lax.psum(_label(wide, labels, axis), axis)
        return jnp.log(total) + largest - label, exps / total[..., None]

    def backward(chances, gradient):
        v = chances.shape[-1]
        hot = jax.nn.one_hot(labels - lax.axis_index(axis) * v, v)
        return (((chances - hot) * gradient[..., None]).astype(logits_shard.dtype),)

    loss = jax.custom_vjp(lambda logits: forward(logits)[0])
    loss.defvjp(forward, backward)
    return loss(logits_shard)


def loss_in_a_stack(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    exps = jnp.exp(logits - largest[..., None]).sum(axis=-1)
    sums = lax.psum(jnp.stack([exps, _label(logits, labels, axis)]), axis)
    return jnp.log(sums[0]) + largest - sums[1]


def loss_of_online_sums(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    local = lax.stop_gradient(logits.max(axis=-1))
    sums = jnp.exp(logits - local[..., None]).sum(axis=-1)
    largest = lax.pmax(local, axis)
    total = lax.psum(sums * jnp.exp(local - largest), axis)
    return jnp.log(total) + largest - lax.psum(_label(logits, labels, axis), axis)


def loss_less_a_hundred(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32) - 100
    total = lax.psum(jnp.exp(logits).sum(axis=-1), axis)
    return jnp.log(total) - lax.psum(_label(logits, labels, axis), axis)


def loss_of_clipped_logits(logits_shard, labels, *, axis):
    logits = jnp.clip(logits_shard.astype(jnp.float32), -80, 80)
    total = lax.psum(jnp.exp(logits).sum(axis=-1), axis)
    return jnp.log(total) - lax.psum(_label(logits, labels, axis), axis)


def loss_of_maximum_only(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    return largest - lax.psum(_label(logits, labels, axis), axis)


def loss_rounded_to_bfloat16(logits_shard, labels, *, axis):
    return loss_in_a_stack(logits_shard, labels, axis=axis).astype(jnp.bfloat16).astype(jnp.float32)


def loss_in_dtype_of_arguments(logits_shard, labels, *, axis):
    return loss_in_a_stack(logits_shard, labels, axis=axis).astype(logits_shard.dtype)


def loss_by_exchange(logits_shard, labels, *, axis):
    n = lax.axis_size(axis)
    flat = logits_shard.reshape(-1, logits_shard.shape[-1])
    flat = jnp.pad(flat, ((0, -len(flat) % n), (0, 0)))
    rows = lax.all_to_all(flat.reshape(n, -1, flat.shape[1]), axis, 0, 2, tiled=True)[0]
    total = jax.nn.logsumexp(rows.astype(jnp.float32), axis=-1)
    total = lax.all_gather(total, axis, tiled=True)[: labels.size].reshape(labels.shape)
    label = _label(logits_shard.astype(jnp.float32), labels, axis)
    return total - lax.psum(label, axis)


def loss_with_gathered_maxima(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    top = lax.all_gather(lax.top_k(lax.stop_gradient(logits), 8)[0], axis, axis=-1, tiled=True)
    largest = top.max(axis=-1)
    total = lax.psum(jnp.exp(logits - largest[..., None]).sum(axis=-1), axis)
    return jnp.log(total) + largest - lax.psum(_label(logits, labels, axis), axis)


def loss_reduced_backward(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    once = loss_in_a_stack(logits, labels, axis=axis)
    # Each device's copy is taken apart from the others', and the gradient is summed over them.
    return lax.pcast(once, axis, to="varying") * 1.0


RIGHT = {
    "vocab_parallel_embedding": (
        embedding_clipped,
        embedding_one_hot,
        embedding_row_of_zeros,
        embedding_filled,
        embedding_by_division,
    ),
    "vocab_parallel_cross_entropy": (
        loss_of_shifted_logits,
        loss_of_local_log_sums,
        loss_by_one_hot,
        loss_with_gradient_by_hand,
        loss_in_a_stack,
        loss_of_online_sums,
    ),
}
WRONG = {
    "vocab_parallel_embedding": {
        embedding_over_whole_mesh: "values",
        embedding_of_sixteen_rows: "values",
        embedding_wraps_outside: "values",
        embedding_negative_wrap: "values",
        embedding_nothing_but_zeros: "values",
        embedding_gradient_doubled: "gradient",
        embedding_gathered_row_by_row: "communication",
        embedding_scattered_and_gathered: "communication",  # backward, too
    },
    "vocab_parallel_cross_entropy": {
        loss_less_a_hundred: "values",
        loss_of_clipped_logits: "values",
        loss_of_maximum_only: "values",
        loss_rounded_to_bfloat16: "values",
        loss_in_dtype_of_arguments: "values",
        loss_by_exchange: "communication",
        loss_with_gathered_maxima: "communication",
        loss_reduced_backward: "communication",
    },
}
