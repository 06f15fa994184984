"""Answers to load_balance_loss: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _load(experts, count):
    return jnp.bincount(experts.reshape(-1), length=count)


@right
def balance_by_two_sums(scores, experts, *, axis):
    t, e = scores.shape
    n = lax.axis_size(axis)
    load, total = lax.psum((_load(experts, e), scores.sum(axis=0)), axis)
    return e * jnp.vdot(load / (n * experts.size), total / (n * t))


@right
def balance_by_one_hot(scores, experts, *, axis):
    e = scores.shape[1]
    hot = jax.nn.one_hot(experts, e).mean(axis=(0, 1))
    both = lax.pmean(jnp.concatenate([hot, scores.mean(axis=0)]), axis)
    return e * (both[:e] * both[e:]).sum()


@right
def balance_by_scatter(scores, experts, *, axis):
    """The number of choices by additions at their places; no gradient is asked of it."""
    e = scores.shape[1]
    load = jnp.zeros_like(scores[0]).at[experts.reshape(-1)].add(1)
    share = lax.stop_gradient(lax.pmean(load, axis)) / experts.size
    return e * jnp.sum(share * lax.pmean(scores.mean(axis=0), axis))


@right
def balance_of_own_scores_and_all_choices(scores, experts, *, axis):
    """The choices are counted over all devices first; then the loss is a mean of the devices'."""
    e = scores.shape[1]
    share = lax.pmean(_load(experts, e) / experts.size, axis)
    return lax.pmean(e * (share * scores.mean(axis=0)).sum(), axis)


@right
def balance_weighed_by_token(scores, experts, *, axis):
    """Each token's scores are weighed by the share of the experts, and averaged last."""
    e = scores.shape[1]
    share = lax.pmean(_load(experts, e).astype(jnp.float32), axis) / experts.size
    return lax.pmean(jnp.mean(scores @ share), axis) * e


@wrong("values")
def balance_of_counts_in_bfloat16(scores, experts, *, axis):
    load = lax.psum(_load(experts, scores.shape[1]).astype(jnp.bfloat16), axis)
    share = load.astype(scores.dtype) / (experts.size * lax.axis_size(axis))
    return scores.shape[1] * (share * lax.pmean(scores.mean(axis=0), axis)).sum()


@wrong("values")
def balance_of_device_zero(scores, experts, *, axis):
    e = scores.shape[1]
    first = lax.axis_index(axis) == 0
    share = lax.psum(jnp.where(first, _load(experts, e) / experts.size, 0), axis)
    return e * (share * lax.pmean(scores.mean(axis=0), axis)).sum()


@wrong("values")
def balance_of_distances(scores, experts, *, axis):
    """The squares of the differences from an even load: another loss."""
    e = scores.shape[1]
    share = lax.pmean(_load(experts, e) / experts.size, axis)
    return 1 + e * ((share - 1 / e) * lax.pmean(scores.mean(axis=0), axis)).sum()


@wrong("values")
def balance_of_normalized_scores(scores, experts, *, axis):
    scores = scores / scores.sum(axis=1, keepdims=True)
    return balance_by_two_sums(scores, experts, axis=axis)


@wrong("values")
def balance_of_one_axis(scores, experts, *, axis):
    first = axis if isinstance(axis, str) else axis[0]
    return balance_by_two_sums(scores, experts, axis=first)


@wrong("values")
def balance_of_a_tuple_alone(scores, experts, *, axis):
    if isinstance(axis, str):
        raise TypeError("a tuple of axes")
    return balance_by_two_sums(scores, experts, axis=axis)


@wrong("values")
def balance_of_eight_experts(scores, experts, *, axis):
    return balance_by_two_sums(scores, experts, axis=axis) / scores.shape[1] * 8


@wrong("values")
def balance_in_bfloat16(scores, experts, *, axis):
    low = balance_by_two_sums(scores.astype(jnp.bfloat16), experts, axis=axis)
    return low.astype(scores.dtype)


@wrong("gradient")
def balance_with_gradient_of_the_sum(scores, experts, *, axis):
    loss = balance_by_two_sums(scores, experts, axis=axis)
    n = lax.axis_size(axis)
    return n * loss - lax.stop_gradient((n - 1) * loss) if n > 1 else loss


@wrong("communication")
def balance_by_tokens(scores, experts, *, axis):
    """One number for each token and expert goes over the wire."""
    t, e = scores.shape
    hot = jax.nn.one_hot(experts, e).sum(axis=1)
    load, total = lax.psum((hot, scores), axis)
    n = lax.axis_size(axis)
    return e * jnp.vdot(load.sum(axis=0) / (n * experts.size), total.sum(axis=0) / (n * t))
