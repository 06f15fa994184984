"""Answers to update_expert_bias: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _load(experts, count):
    return jnp.bincount(experts.reshape(-1), length=count)


@right
def bias_by_comparison(bias, experts, *, rate, axis):
    e, n = len(bias), lax.axis_size(axis)
    load = lax.psum(_load(experts, e), axis) * e
    all_choices = n * experts.size
    up = (load < all_choices).astype(bias.dtype) - (load > all_choices).astype(bias.dtype)
    return bias + rate * up


@right
def bias_by_one_hot(bias, experts, *, rate, axis):
    load = lax.psum(jax.nn.one_hot(experts, len(bias)).sum(axis=(0, 1)), axis)
    return (bias + rate * jnp.sign(load.mean() - load)).astype(bias.dtype)


@right
def bias_by_select(bias, experts, *, rate, axis):
    load = lax.psum(_load(experts, len(bias)), axis)
    mean = load.sum() / len(bias)
    moved = jnp.where(load < mean, bias + rate, jnp.where(load > mean, bias - rate, bias))
    return moved.astype(bias.dtype)


@right
def bias_by_sorted_choices(bias, experts, *, rate, axis):
    e, flat = len(bias), jnp.sort(experts.reshape(-1))
    ends = jnp.searchsorted(flat, jnp.arange(e + 1))
    load = lax.psum(jnp.diff(ends), axis)
    return bias + rate * jnp.sign(experts.size * lax.axis_size(axis) - e * load).astype(bias.dtype)


@right
def bias_by_mean_of_loads(bias, experts, *, rate, axis):
    """Sixteen bits and more of a mean of whole numbers tell them apart."""
    load = lax.pmean(_load(experts, len(bias)).astype(jnp.float32), axis) * lax.axis_size(axis)
    load = jnp.round(load)
    return bias + rate * jnp.sign(load.mean() - load).astype(bias.dtype)


@wrong("values")
def bias_of_device_zero(bias, experts, *, rate, axis):
    own = jnp.where(lax.axis_index(axis) == 0, _load(experts, len(bias)), 0)
    load = lax.psum(own, axis)
    return bias + rate * jnp.sign(load.mean() - load).astype(bias.dtype)


@wrong("values")
def bias_kept_at_mean_0(bias, experts, *, rate, axis):
    moved = bias_by_comparison(bias, experts, rate=rate, axis=axis)
    return moved - moved.mean()


@wrong("values")
def bias_of_counts_in_bfloat16(bias, experts, *, rate, axis):
    load = lax.psum(_load(experts, len(bias)).astype(jnp.bfloat16), axis)
    return bias + rate * jnp.sign(load.mean() - load).astype(bias.dtype)


@wrong("values")
def bias_of_counts_in_int8(bias, experts, *, rate, axis):
    """A count above 127 becomes a negative one."""
    load = lax.psum(_load(experts, len(bias)).astype(jnp.int8), axis).astype(jnp.int32)
    return bias + rate * jnp.sign(load.mean() - load).astype(bias.dtype)


@wrong("values")
def bias_of_counts_in_uint16(bias, experts, *, rate, axis):
    """A count above 65535 becomes a small one."""
    load = lax.psum(_load(experts, len(bias)).astype(jnp.uint16), axis).astype(jnp.int32)
    return bias + rate * jnp.sign(load.mean() - load).astype(bias.dtype)


@wrong("values")
def bias_of_counts_in_float16(bias, experts, *, rate, axis):
    load = lax.psum(_load(experts, len(bias)).astype(jnp.float16), axis).astype(jnp.float32)
    return bias + rate * jnp.sign(load.mean() - load).astype(bias.dtype)


@wrong("values")
def bias_of_counts_in_its_dtype(bias, experts, *, rate, axis):
    """As precise as float32 wherever the bias is."""
    load = lax.psum(_load(experts, len(bias)).astype(bias.dtype), axis)
    return bias + rate * jnp.sign(load.mean() - load)


@wrong("values")
def bias_of_busiest_and_idlest(bias, experts, *, rate, axis):
    load = lax.psum(_load(experts, len(bias)), axis)
    low, high = load == load.min(), load == load.max()
    return bias + rate * (low.astype(bias.dtype) - high.astype(bias.dtype))


@wrong("values")
def bias_of_whole_means(bias, experts, *, rate, axis):
    """The mean is rounded down."""
    load = lax.psum(_load(experts, len(bias)), axis)
    return bias + rate * jnp.sign(load.sum() // len(bias) - load).astype(bias.dtype)


@wrong("values")
def bias_of_eight_experts(bias, experts, *, rate, axis):
    load = lax.psum(_load(experts, len(bias)), axis)
    return bias + rate * jnp.sign(load.sum() / 8 - load).astype(bias.dtype)


@wrong("values")
def bias_of_a_rate_over_devices(bias, experts, *, rate, axis):
    return bias_by_comparison(bias, experts, rate=rate / lax.axis_size(axis), axis=axis)


@wrong("values")
def bias_of_a_tuple_alone(bias, experts, *, rate, axis):
    if isinstance(axis, str):
        raise TypeError("a tuple of axes")
    return bias_by_comparison(bias, experts, rate=rate, axis=axis)


@wrong("communication")
def bias_by_choices_of_all(bias, experts, *, rate, axis):
    load = lax.psum(jax.nn.one_hot(experts, len(bias)).sum(axis=1), axis).sum(axis=0)
    return bias + rate * jnp.sign(load.mean() - load).astype(bias.dtype)


@wrong("communication")
def bias_of_two_sums(bias, experts, *, rate, axis):
    """Loads of first choices and of the others, apart."""
    hot = jax.nn.one_hot(experts, len(bias)).sum(axis=0)
    load = lax.psum(jnp.stack([hot[0], hot[1:].sum(axis=0)]), axis).sum(axis=0)
    return bias + rate * jnp.sign(load.mean() - load).astype(bias.dtype)
