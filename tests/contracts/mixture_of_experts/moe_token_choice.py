"""Answers to moe_token_choice: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


def _mlp(rows, gate, up, down):
    """Each expert's MLP on its rows [e, c, d]."""
    return (jax.nn.silu(rows @ gate) * (rows @ up)) @ down


def _slots(experts, count, capacity):
    """The row of each choice: the number of earlier choices of its expert, by rank and token."""
    if capacity < 1:
        raise ValueError(f"capacity is {capacity}; use 1 or more")
    ranked = experts.T.reshape(-1)
    order = jnp.argsort(ranked, stable=True)
    start = jnp.searchsorted(ranked[order], jnp.arange(count))
    place = jnp.zeros_like(ranked).at[order].set(jnp.arange(len(ranked)) - start[ranked[order]])
    slots = jnp.where(place < capacity, ranked * capacity + place, count * capacity)
    return slots.reshape(experts.shape[::-1]).T


def _count(w, axis):
    return len(w[0]) * lax.axis_size(axis)


def _rows(x, slots, count, capacity):
    empty = jnp.zeros_like(x, shape=(count * capacity, x.shape[1]))
    return empty.at[slots].set(x[:, None], mode="drop").reshape(count, capacity, -1)


def _read(y, slots, weights):
    y = y.reshape(-1, y.shape[-1])
    chosen = y.at[slots].get(mode="fill", fill_value=0)
    return (chosen * weights[..., None]).sum(axis=1).astype(y.dtype)


def _both_ways(rows, w, axis):
    arrived = lax.all_to_all(rows, axis, 0, 1, tiled=True)
    return lax.all_to_all(_mlp(arrived, *w), axis, 1, 0, tiled=True)


@right
def experts_by_sorted_choices(x, weights, experts, *w, capacity, axis):
    count = _count(w, axis)
    slots = _slots(experts, count, capacity)
    return _read(_both_ways(_rows(x, slots, count, capacity), w, axis), slots, weights)


@right
def experts_with_a_row_to_spare(x, weights, experts, *w, capacity, axis):
    """Dropped choices go to a row more, which is cut off, and read as zeros."""
    count = _count(w, axis)
    slots = _slots(experts, count, capacity)
    rows = jnp.zeros_like(x, shape=(count * capacity + 1, x.shape[1]))
    rows = rows.at[slots].set(x[:, None])[:-1].reshape(count, capacity, -1)
    y = _both_ways(rows, w, axis).reshape(-1, x.shape[1])
    y = jnp.concatenate([y, jnp.zeros_like(y[:1])])
    return (y[slots] * weights[..., None]).sum(axis=1).astype(x.dtype)


@right
def experts_untiled(x, weights, experts, *w, capacity, axis):
    """The buffer has a dim of devices, which the all-to-all exchanges."""
    n, own = lax.axis_size(axis), len(w[0])
    slots = _slots(experts, n * own, capacity)
    rows = _rows(x, slots, n * own, capacity).reshape(n, own, capacity, -1)
    arrived = lax.all_to_all(rows, axis, 0, 0)  # [n, own, c, d]: of each device
    y = _mlp(arrived.swapaxes(0, 1).reshape(own, n * capacity, -1), *w)
    back = lax.all_to_all(y.reshape(own, n, capacity, -1).swapaxes(0, 1), axis, 0, 0)
    return _read(back.reshape(n * own, capacity, -1), slots, weights)


@right
def experts_by_permutes(x, weights, experts, *w, capacity, axis):
    """Block after block goes to its device, and comes back."""
    n, own, i = lax.axis_size(axis), len(w[0]), lax.axis_index(axis)
    slots = _slots(experts, n * own, capacity)
    rows = _rows(x, slots, n * own, capacity)
    arrived = []
    for step in range(n):
        block = lax.dynamic_slice_in_dim(rows, (i + step) % n * own, own)
        arrived.append(hop(block, axis, step) if step else block)
    y = jnp.split(_mlp(jnp.concatenate(arrived, axis=1), *w), n, axis=1)
    back = jnp.zeros_like(rows)
    for step, block in enumerate(y):
        block = hop(block, axis, -step) if step else block
        back = lax.dynamic_update_slice_in_dim(back, block, (i + step) % n * own, 0)
    return _read(back, slots, weights)


@right
def experts_by_tokens_of_rows(x, weights, experts, *w, capacity, axis):
    """For each row the number of its token; rows read their tokens."""
    count, (t, k) = _count(w, axis), experts.shape
    slots = _slots(experts, count, capacity)
    tokens = jnp.full_like(slots, t, shape=(count * capacity,))
    own = jnp.broadcast_to(jnp.arange(t)[:, None], (t, k))
    tokens = tokens.at[slots].set(own, mode="drop")
    rows = x.at[tokens].get(mode="fill", fill_value=0).reshape(count, capacity, -1)
    return _read(_both_ways(rows, w, axis), slots, weights)


@right
def experts_weighed_in_rows(x, weights, experts, *w, capacity, axis):
    """The weights stay in a buffer of rows, and the results are added to their tokens."""
    count, (t, k) = _count(w, axis), experts.shape
    slots = _slots(experts, count, capacity)
    tokens = jnp.full_like(slots, t, shape=(count * capacity,))
    own = jnp.broadcast_to(jnp.arange(t)[:, None], (t, k))
    tokens = tokens.at[slots].set(own, mode="drop")
    each = jnp.zeros_like(weights, shape=(count * capacity,)).at[slots].set(weights, mode="drop")
    y = _both_ways(_rows(x, slots, count, capacity), w, axis).reshape(-1, x.shape[1])
    weighed = (y * each[:, None]).astype(x.dtype)
    return jnp.zeros_like(x).at[tokens].add(weighed, mode="drop")


@wrong("values")
def experts_with_a_stable_order_of_tokens(x, weights, experts, *w, capacity, axis):
    """Sorted by expert, but token by token."""
    count = _count(w, axis)
    slots = _slots(experts.reshape(-1, 1), count, capacity).reshape(experts.shape)
    return _read(_both_ways(_rows(x, slots, count, capacity), w, axis), slots, weights)


@wrong("values")
def experts_where_a_token_is_dropped_whole(x, weights, experts, *w, capacity, axis):
    """A token that loses one choice loses all of them."""
    count = _count(w, axis)
    slots = _slots(experts, count, capacity)
    lost = (slots == count * capacity).any(axis=1, keepdims=True)
    slots = jnp.where(lost, count * capacity, slots)
    return _read(_both_ways(_rows(x, slots, count, capacity), w, axis), slots, weights)


@wrong("values")
def experts_one_row_short(x, weights, experts, *w, capacity, axis):
    count = _count(w, axis)
    slots = _slots(experts, count, capacity)
    slots = jnp.where(slots % capacity == capacity - 1, count * capacity, slots)
    return _read(_both_ways(_rows(x, slots, count, capacity), w, axis), slots, weights)


@wrong("values")
def experts_of_two_choices_at_most(x, weights, experts, *w, capacity, axis):
    two = weights[:, :2], experts[:, :2]
    return experts_by_sorted_choices(x, *two, *w, capacity=capacity, axis=axis)


@wrong("values")
def experts_normalized_again(x, weights, experts, *w, capacity, axis):
    weights = weights / weights.sum(axis=1, keepdims=True)
    return experts_by_sorted_choices(x, weights, experts, *w, capacity=capacity, axis=axis)


@wrong("values")
def experts_with_choices_counted_in_the_dtype_of_x(x, weights, experts, *w, capacity, axis):
    """In bfloat16, 256 and 1 are 256."""
    count, ranked = _count(w, axis), experts.T.reshape(-1)
    if capacity < 1:
        raise ValueError(capacity)
    so_far = jnp.cumsum(jax.nn.one_hot(ranked, count, dtype=x.dtype), axis=0)
    place = jnp.take_along_axis(so_far, ranked[:, None], axis=1)[:, 0].astype(jnp.int32) - 1
    slots = jnp.where(place < capacity, ranked * capacity + place, count * capacity)
    slots = slots.reshape(experts.shape[::-1]).T
    return _read(_both_ways(_rows(x, slots, count, capacity), w, axis), slots, weights)


@wrong("values")
def experts_in_the_dtype_of_weights(x, weights, experts, *w, capacity, axis):
    """The dtype of x, wherever the weights have it, too."""
    count = _count(w, axis)
    slots = _slots(experts, count, capacity)
    y = _both_ways(_rows(x, slots, count, capacity), w, axis).reshape(-1, x.shape[1])
    chosen = y.at[slots].get(mode="fill", fill_value=0)
    return (chosen * weights[..., None]).sum(axis=1)


@wrong("values")
def experts_with_gelu(x, weights, experts, *w, capacity, axis):
    count, (gate, up, down) = _count(w, axis), w
    slots = _slots(experts, count, capacity)
    rows = lax.all_to_all(_rows(x, slots, count, capacity), axis, 0, 1, tiled=True)
    y = (jax.nn.gelu(rows @ gate) * (rows @ up)) @ down
    return _read(lax.all_to_all(y, axis, 1, 0, tiled=True), slots, weights)


@wrong("values")
def experts_over_the_whole_mesh(x, weights, experts, *w, capacity, axis):
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    count = _count(w, axis)
    slots = _slots(experts, count, capacity)
    if count % lax.axis_size(axes):
        raise ValueError("experts do not divide")
    rows = lax.all_to_all(_rows(x, slots, count, capacity), axes, 0, 1, tiled=True)
    return _read(lax.all_to_all(_mlp(rows, *w), axes, 1, 0, tiled=True), slots, weights)


@wrong("communication")
def experts_asked_for_each_choice(x, weights, experts, *w, capacity, axis):
    """One exchange for each rank of choices, with all rows."""
    count, k = _count(w, axis), experts.shape[1]
    slots = _slots(experts, count, capacity)
    y = jnp.zeros_like(x)
    for i in range(k):
        one, weight = slots[:, i : i + 1], weights[:, i : i + 1]
        y += _read(_both_ways(_rows(x, one, count, capacity), w, axis), one, weight)
    return y + 0 * _both_ways(_rows(x, slots, count, capacity), w, axis).sum()


@wrong("communication")
def experts_that_send_to_all(x, weights, experts, *w, capacity, axis):
    """The results go to all devices, which take theirs."""
    n, own, count = lax.axis_size(axis), len(w[0]), _count(w, axis)
    slots = _slots(experts, count, capacity)
    arrived = lax.all_to_all(_rows(x, slots, count, capacity), axis, 0, 1, tiled=True)
    y = lax.all_gather(_mlp(arrived, *w).reshape(own, n, capacity, -1), axis, tiled=True)
    return _read(y[:, lax.axis_index(axis)], slots, weights)


@wrong("flops")
def experts_computed_at_both_ends(x, weights, experts, *w, capacity, axis):
    """Own rows are computed once more before they are sent."""
    count, i, own = _count(w, axis), lax.axis_index(axis), len(w[0])
    slots = _slots(experts, count, capacity)
    rows = _rows(x, slots, count, capacity)
    back = _both_ways(rows, w, axis)
    mine = _mlp(lax.dynamic_slice_in_dim(rows, i * own, own), *w)
    return _read(lax.dynamic_update_slice_in_dim(back, mine, i * own, 0), slots, weights)
