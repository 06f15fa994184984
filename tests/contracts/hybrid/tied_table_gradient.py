"""Answers to tied_table_gradient: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import gathered, hop, own_shard, scattered
from tests.contracts.answers import right


def _own(embedding_grad, head_grad, axis):
    """What this stage adds, chosen by conditions."""
    stage, last = lax.axis_index(axis), lax.axis_size(axis) - 1
    zeros = jnp.zeros_like(embedding_grad)
    first = lax.select(stage == 0, embedding_grad, zeros)
    return first + lax.select(stage == last, head_grad.T, zeros)


@right
def tied_rows_exchanged(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    own = _own(embedding_grad, head_grad, pipeline_axis)
    parts = own.reshape(lax.axis_size(shard_axis), -1, own.shape[1])
    rows = lax.all_to_all(parts, shard_axis, 0, 0).sum(axis=0).astype(own.dtype)
    return lax.psum(rows, pipeline_axis)


@right
def tied_rows_by_a_ring(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    own = _own(embedding_grad, head_grad, pipeline_axis)
    n, i = lax.axis_size(shard_axis), lax.axis_index(shard_axis)
    parts = own.reshape(n, -1, own.shape[1])
    rows = parts[(i - 1) % n]
    for step in range(2, n + 1):
        rows = hop(rows, shard_axis) + parts[(i - step) % n]
    return lax.psum(rows, pipeline_axis)


@right
def tied_rows_scattered_over_the_stages_too(
    embedding_grad, head_grad, *, pipeline_axis, shard_axis
):
    rows = scattered(_own(embedding_grad, head_grad, pipeline_axis), shard_axis)
    p = lax.axis_size(pipeline_axis)
    if rows.size % p:
        return lax.psum(rows, pipeline_axis)
    part = scattered(rows.ravel(), pipeline_axis)
    return gathered(part, pipeline_axis).reshape(rows.shape)


@right
def tied_rows_by_transposed_sums(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """Works in the shape of the head, and transposes the rows at the end."""
    own = _own(embedding_grad, head_grad, pipeline_axis).T
    rows = lax.psum_scatter(own, shard_axis, scatter_dimension=1, tiled=True)
    return lax.psum(rows, pipeline_axis).T


@right
def tied_rows_by_condition(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    stage, last = lax.axis_index(pipeline_axis), lax.axis_size(pipeline_axis) - 1
    is_first, is_last = stage == 0, stage == last
    own = lax.cond(
        is_first,
        lambda e, h: jnp.where(is_last, e + h.T, e),
        lambda e, h: jnp.where(is_last, h.T, jnp.zeros_like(e)),
        embedding_grad,
        head_grad,
    )
    return lax.psum(scattered(own, shard_axis), pipeline_axis)


@right
def tied_rows_cleaned(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """What other stages hold is made finite before it is multiplied by 0."""
    stage, last = lax.axis_index(pipeline_axis), lax.axis_size(pipeline_axis) - 1
    clean = [jnp.nan_to_num(g, posinf=0, neginf=0) for g in (embedding_grad, head_grad.T)]
    own = clean[0] * (stage == 0) + clean[1] * (stage == last)
    return lax.psum(scattered(own, shard_axis), pipeline_axis)


@wrong("communication")
def tied_rows_of_gathered_stages(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    rows = scattered(_own(embedding_grad, head_grad, pipeline_axis), shard_axis)
    return lax.all_gather(rows, pipeline_axis).sum(axis=0).astype(rows.dtype)


@wrong("communication")
def tied_rows_round_the_pipeline(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    rows = scattered(_own(embedding_grad, head_grad, pipeline_axis), shard_axis)
    moving = rows
    for _ in range(lax.axis_size(pipeline_axis) - 1):
        moving = hop(moving, pipeline_axis)
        rows = rows + moving
    return rows


@wrong("communication")
def tied_rows_by_one_scatter_of_both(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """Both gradients in one message, side by side."""
    stage, last = lax.axis_index(pipeline_axis), lax.axis_size(pipeline_axis) - 1
    first = jnp.where(stage == 0, embedding_grad, 0)
    final = jnp.where(stage == last, head_grad.T, 0)
    rows = scattered(jnp.concatenate([first, final], axis=1), shard_axis)
    rows = lax.psum(rows, pipeline_axis)
    return rows[:, : first.shape[1]] + rows[:, first.shape[1] :]


@wrong("communication")
def tied_table_sent_to_the_first_stage(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """The last stage sends its whole gradient to the first one, which tells all."""
    stage, last = lax.axis_index(pipeline_axis), lax.axis_size(pipeline_axis) - 1
    head = head_grad.T
    arrived = lax.ppermute(head, pipeline_axis, [(last, 0)]) if last else head
    own = jnp.where(stage == 0, embedding_grad + arrived, 0)
    return lax.psum(scattered(own, shard_axis), pipeline_axis)


@wrong("communication")
def tied_table_scattered_over_both_axes(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """Reduce-scattered over the pipeline first: its links carry parts of the whole table."""
    own = _own(embedding_grad, head_grad, pipeline_axis)
    rows, p = own.reshape(lax.axis_size(shard_axis), -1), lax.axis_size(pipeline_axis)
    padded = jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % p)))
    part = scattered(scattered(padded, pipeline_axis, 1), shard_axis)
    whole = gathered(part, pipeline_axis, 1)[0, : rows.shape[1]]
    return whole.reshape(-1, own.shape[1])


@wrong("values")
def tied_rows_with_two_stages(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """Takes stage 1 for the last one."""
    stage = lax.axis_index(pipeline_axis)
    own = jnp.where(stage == 0, embedding_grad, 0) + jnp.where(stage == 1, head_grad.T, 0)
    return lax.psum(scattered(own, shard_axis), pipeline_axis)


@wrong("values")
def tied_rows_of_all_but_the_last(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    stage, last = lax.axis_index(pipeline_axis), lax.axis_size(pipeline_axis) - 1
    own = jnp.where(stage == last, head_grad.T, embedding_grad)
    return lax.psum(scattered(own, shard_axis), pipeline_axis)


@wrong("values")
def tied_rows_that_are_finite(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """Takes what is not finite for what other stages hold."""
    both = [jnp.nan_to_num(g, posinf=0, neginf=0) for g in (embedding_grad, head_grad.T)]
    return lax.psum(scattered(both[0] + both[1], shard_axis), pipeline_axis)


@wrong("values")
def tied_rows_over_pp(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    own = _own(embedding_grad, head_grad, "pp")
    return lax.psum(scattered(own, shard_axis), "pp")


@wrong("values")
def tied_rows_over_the_mesh(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """Sums over an axis that the docstring does not name, too."""
    from jaxpar.mesh import in_mesh_order, varying_axes

    rows = scattered(_own(embedding_grad, head_grad, pipeline_axis), shard_axis)
    return lax.psum(rows, in_mesh_order(varying_axes(rows) - {shard_axis}))


@wrong("values")
def tied_rows_in_float32(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    own = _own(embedding_grad, head_grad, pipeline_axis)
    return lax.psum(scattered(own, shard_axis), pipeline_axis).astype(jnp.float32)


@wrong("values")
def tied_rows_in_turn(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """Device i has rows i, i + n, i + 2 n and so on."""
    own = _own(embedding_grad, head_grad, pipeline_axis)
    n = lax.axis_size(shard_axis)
    dealt = own.reshape(-1, n, own.shape[1]).swapaxes(0, 1).reshape(own.shape)
    return lax.psum(scattered(dealt, shard_axis), pipeline_axis)


@wrong("sharding")
def tied_table_gathered(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    rows = scattered(_own(embedding_grad, head_grad, pipeline_axis), shard_axis)
    return gathered(lax.psum(rows, pipeline_axis), shard_axis)


@wrong("values")
def tied_rows_of_a_quarter(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    """Takes n for 4."""
    own = lax.psum(_own(embedding_grad, head_grad, pipeline_axis), (pipeline_axis, shard_axis))
    size = len(own) // 4
    return lax.dynamic_slice_in_dim(own, lax.axis_index(shard_axis) * size, size, 0)


@wrong("communication")
def tied_rows_cut_from_the_sum(embedding_grad, head_grad, *, pipeline_axis, shard_axis):
    own = _own(embedding_grad, head_grad, pipeline_axis)
    return own_shard(lax.psum(lax.psum(own, shard_axis), pipeline_axis), shard_axis)
