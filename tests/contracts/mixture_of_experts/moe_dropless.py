"""Answers to moe_dropless: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from jaxpar.experts import grouped_matmul
from tests.contracts.answers import right


def _mlp(rows, w, sizes, block):
    gate, up, down = w
    opened = jax.nn.silu(grouped_matmul(rows, gate, sizes, block=block))
    return grouped_matmul(
        opened * grouped_matmul(rows, up, sizes, block=block), down, sizes, block=block
    )


def _own(experts, count, axis):
    own = experts - lax.axis_index(axis) * count
    return jnp.where((own >= 0) & (own < count), own, count)


def _all(axis, *given):
    return tuple(lax.all_gather(each, axis, tiled=True) for each in given)


def _weighed(y, weights):
    return (y * weights[:, None]).astype(y.dtype)


def _scattered(total, axis):
    return lax.psum_scatter(total, axis, tiled=True)


@right
def choices_put_back_by_the_inverse(x, weights, experts, *w, block, axis, skip=False):
    x, weights, experts = _all(axis, x, weights, experts)
    own, k = _own(experts, len(w[0]), axis).reshape(-1), experts.shape[1]
    order = jnp.argsort(own)
    sizes = jax.nn.one_hot(own, len(w[0]), dtype=jnp.int32).sum(axis=0)
    y = _mlp(jnp.repeat(x, k, axis=0)[order], w, sizes, block)
    y = y[jnp.argsort(order)].reshape(*experts.shape, -1)
    return _scattered((y * weights[..., None]).sum(axis=1).astype(x.dtype), axis)


@right
def choices_rank_by_rank_in_the_order(x, weights, experts, *w, block, axis, skip=False):
    """Flattened by rank, then by token."""
    x, weights, experts = _all(axis, x, weights, experts)
    own = _own(experts, len(w[0]), axis).T.reshape(-1)
    order = jnp.argsort(own)
    sizes = jnp.diff(jnp.searchsorted(own[order], jnp.arange(len(w[0]) + 1)))
    tokens = order % len(x)
    y = _weighed(_mlp(x[tokens], w, sizes, block), weights.T.reshape(-1)[order])
    return _scattered(jax.ops.segment_sum(y, tokens, len(x)).astype(x.dtype), axis)


@right
def weights_of_each_expert_gathered(x, weights, experts, *w, block, axis, skip=False):
    """What is stranger weighs nothing, too."""
    x, weights, experts = _all(axis, x, weights, experts)
    own, k = _own(experts, len(w[0]), axis).reshape(-1), experts.shape[1]
    weights = jnp.where(own < len(w[0]), weights.reshape(-1), 0)
    order = jnp.argsort(own)
    sizes = jnp.bincount(own, length=len(w[0]) + 1)[:-1]
    y = _weighed(_mlp(x[order // k], w, sizes, block), weights[order])
    return _scattered(jnp.zeros_like(x).at[order // k].add(y), axis)


@right
def tokens_that_come_round_a_ring(x, weights, experts, *w, block, axis, skip=False):
    """Shard after shard arrives; then all are treated as if they had been gathered."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    found = []
    for given in (x, weights, experts):
        whole, passing = jnp.zeros_like(given, shape=(n * len(given), given.shape[1])), given
        for step in range(n):
            passing = hop(passing, axis) if step else passing
            place = (i - step) % n * len(given)
            whole = lax.dynamic_update_slice_in_dim(whole, passing, place, 0)
        found.append(whole)
    x, weights, experts = found
    own, k = _own(experts, len(w[0]), axis).reshape(-1), experts.shape[1]
    order, sizes = jnp.argsort(own), jnp.bincount(own, length=len(w[0]) + 1)[:-1]
    y = _weighed(_mlp(x[order // k], w, sizes, block), weights.reshape(-1)[order])
    return _scattered(jnp.zeros_like(x).at[order // k].add(y), axis)


@right
def choices_in_blocks_of_one_scan(x, weights, experts, *w, block, axis, skip=False):
    """All three products of a block, before the next block."""
    x, weights, experts = _all(axis, x, weights, experts)
    count, k = len(w[0]), experts.shape[1]
    own = _own(experts, count, axis).reshape(-1)
    order, sizes = jnp.argsort(own), jnp.bincount(own, length=count + 1)[:-1]
    full, last, row = -(-sizes // block), jnp.cumsum(sizes), jnp.arange(len(own))
    ends, group = jnp.cumsum(full), own[order]
    most = -(-len(own) // block) + count
    moved = ((ends - full) * block - (last - sizes)).at[group].get(mode="fill", fill_value=0)
    place = jnp.where(group < count, row + moved, most * block)
    tokens = jnp.full_like(place, len(x), shape=(most * block,))
    tokens = tokens.at[place].set(order // k, mode="drop").reshape(most, block)
    each = jnp.zeros_like(weights, shape=(most * block,))
    each = each.at[place].set(weights.reshape(-1)[order], mode="drop").reshape(most, block)
    owner = jnp.minimum(jnp.searchsorted(ends, jnp.arange(most), side="right"), count - 1)

    @jax.checkpoint
    def one(total, given):
        tokens, weight, i = given
        rows = x.at[tokens].get(mode="fill", fill_value=0)
        gate, up, down = (matrix[i] for matrix in w)
        y = (jax.nn.silu(rows @ gate) * (rows @ up)) @ down
        return total.at[tokens].add(_weighed(y, weight), mode="drop"), None

    return _scattered(lax.scan(one, 0 * x, (tokens, each, owner))[0], axis)


@wrong("values")
def choices_in_reverse(x, weights, experts, *w, block, axis, skip=False):
    x, weights, experts = _all(axis, x, weights, experts)
    own, k = _own(experts, len(w[0]), axis).reshape(-1), experts.shape[1]
    order, sizes = jnp.argsort(-own), jnp.bincount(own, length=len(w[0]) + 1)[:-1]
    y = _weighed(_mlp(x[order // k], w, sizes, block), weights.reshape(-1)[order])
    return _scattered(jnp.zeros_like(x).at[order // k].add(y), axis)


@wrong("values")
def choices_of_twice_the_mean_at_most(x, weights, experts, *w, block, axis, skip=False):
    """Room for twice as many rows as there are on average; the others are dropped."""
    room = 2 * experts.size
    x, weights, experts = _all(axis, x, weights, experts)
    own, k = _own(experts, len(w[0]), axis).reshape(-1), experts.shape[1]
    order = jnp.argsort(own)[:room]
    sizes = jnp.bincount(own[order], length=len(w[0]) + 1)[:-1]
    y = _weighed(_mlp(x[order // k], w, sizes, block), weights.reshape(-1)[order])
    return _scattered(jnp.zeros_like(x).at[order // k].add(y), axis)


@wrong("values")
def choices_with_negative_numbers(x, weights, experts, *w, block, axis, skip=False):
    """Experts of earlier devices have negative numbers, which come first."""
    x, weights, experts = _all(axis, x, weights, experts)
    count, k = len(w[0]), experts.shape[1]
    own = (experts - lax.axis_index(axis) * count).reshape(-1)
    order = jnp.argsort(own)
    sizes = jax.nn.one_hot(own, count, dtype=jnp.int32).sum(axis=0)
    y = _weighed(_mlp(x[order // k], w, sizes, block), weights.reshape(-1)[order])
    return _scattered(jnp.zeros_like(x).at[order // k].add(y), axis)


@wrong("values")
def choices_of_two_ranks(x, weights, experts, *w, block, axis, skip=False):
    two = weights[:, :2], experts[:, :2]
    return choices_put_back_by_the_inverse(x, *two, *w, block=block, axis=axis)


@wrong("values")
def choices_on_several_devices_alone(x, weights, experts, *w, block, axis, skip=False):
    if lax.axis_size(axis) == 1:
        raise ValueError("one device")
    return choices_put_back_by_the_inverse(x, weights, experts, *w, block=block, axis=axis)


@wrong("values")
def choices_added_in_float32(x, weights, experts, *w, block, axis, skip=False):
    y = choices_put_back_by_the_inverse(x, weights, experts, *w, block=block, axis=axis)
    return y.astype(jnp.float32)


@wrong("values")
def choices_in_the_dtype_of_weights(x, weights, experts, *w, block, axis, skip=False):
    """The dtype of x, wherever the weights have it, too."""
    x, weights, experts = _all(axis, x, weights, experts)
    own, k = _own(experts, len(w[0]), axis).reshape(-1), experts.shape[1]
    order, sizes = jnp.argsort(own), jnp.bincount(own, length=len(w[0]) + 1)[:-1]
    y = _mlp(x[order // k], w, sizes, block) * weights.reshape(-1)[order][:, None]
    return _scattered(jnp.zeros_like(x, y.dtype).at[order // k].add(y), axis)


@wrong("gradient")
def choices_with_half_a_gradient(x, weights, experts, *w, block, axis, skip=False):
    """The gate has no gradient."""
    gate, *rest = w
    w = lax.stop_gradient(gate), *rest
    return choices_put_back_by_the_inverse(x, weights, experts, *w, block=block, axis=axis)


@wrong("communication")
def choices_sent_to_all(x, weights, experts, *w, block, axis, skip=False):
    """What the experts give is gathered before it is added up."""
    t, k = experts.shape
    x, weights, experts = _all(axis, x, weights, experts)
    own = _own(experts, len(w[0]), axis).reshape(-1)
    order, sizes = jnp.argsort(own), jnp.bincount(own, length=len(w[0]) + 1)[:-1]
    y = _weighed(_mlp(x[order // k], w, sizes, block), weights.reshape(-1)[order])
    total = lax.all_gather(jnp.zeros_like(x).at[order // k].add(y), axis).sum(axis=0)
    return lax.dynamic_slice_in_dim(total, lax.axis_index(axis) * t, t)


@wrong("communication")
def choices_as_a_mask(x, weights, experts, *w, block, axis, skip=False):
    """The weights of all experts are gathered, most of them 0."""
    n, count, (t, k) = lax.axis_size(axis), len(w[0]), experts.shape
    mask = jnp.zeros_like(weights, shape=(t, n * count))
    mask = mask.at[jnp.arange(t)[:, None], experts].set(weights)
    x, mask, experts = _all(axis, x, mask, experts)
    own = _own(experts, count, axis).reshape(-1)
    order, sizes = jnp.argsort(own), jnp.bincount(own, length=count + 1)[:-1]
    each = mask[order // k, experts.reshape(-1)[order]]
    y = _weighed(_mlp(x[order // k], w, sizes, block), each)
    return _scattered(jnp.zeros_like(x).at[order // k].add(y), axis)


@wrong("flops")
def choices_rank_by_rank(x, weights, experts, *w, block, axis, skip=False):
    """Each rank of choices is computed in blocks of its own, and padded each time."""
    x, weights, experts = _all(axis, x, weights, experts)
    total = jnp.zeros_like(x)
    for weight, rank in zip(weights.T, experts.T, strict=True):
        own = _own(rank, len(w[0]), axis)
        for i in range(len(w[0])):  # one expert after the other, with room for all
            y = (jax.nn.silu(x @ w[0][i]) * (x @ w[1][i])) @ w[2][i]
            total += jnp.where((own == i)[:, None], _weighed(y, weight), 0)
    return _scattered(total, axis)
