"""Answers to sample_parallel: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.mesh import vary
from tests.contracts.answers import right


def _scores(logits, noise, temperature, axis):
    return logits.astype(jnp.float32) + vary(temperature, (axis,))[:, None] * noise


@right
def largest_negative_token(logits, noise, temperature, *, axis):
    """The maximum of negative tokens in place of a minimum."""
    scores = _scores(logits, noise, temperature, axis)
    start = lax.axis_index(axis) * scores.shape[1]
    best = lax.pmax(scores.max(1), axis)
    tokens = jnp.where(scores == best[:, None], start + jnp.arange(scores.shape[1])[None], 2**30)
    return -lax.pmax(-tokens.min(1), axis)


@right
def temperature_divides_where_it_can(logits, noise, temperature, *, axis):
    warm = vary(temperature, (axis,))[:, None]
    wide = logits.astype(jnp.float32)
    scores = jnp.where(warm > 0, wide / jnp.where(warm > 0, warm, 1) + noise, wide)
    top, place = lax.top_k(scores, 1)
    token = lax.axis_index(axis) * scores.shape[1] + place[:, 0]
    wins = top[:, 0] >= lax.pmax(top[:, 0], axis)
    return lax.pmin(jnp.where(wins, token, 2**31 - 1), axis)


@right
def first_device_speaks(logits, noise, temperature, *, axis):
    """Tokens as float32, which are exact: the devices that lose say infinity."""
    scores = _scores(logits, noise, temperature, axis)
    token = (lax.axis_index(axis) * scores.shape[1] + jnp.argmax(scores, 1)).astype(jnp.float32)
    wins = scores.max(1) == lax.pmax(scores.max(1), axis)
    return lax.pmin(jnp.where(wins, token, jnp.inf), axis).astype(jnp.int32)


@wrong("values")
def a_thousand_at_most(logits, noise, temperature, *, axis):
    """Devices that lose propose token 40."""
    scores = _scores(logits, noise, temperature, axis)
    token = lax.axis_index(axis) * scores.shape[1] + jnp.argmax(scores, 1)
    wins = scores.max(1) == lax.pmax(scores.max(1), axis)
    return lax.pmin(jnp.where(wins, token, 40), axis)


@wrong("values")
def packed_into_one_number(logits, noise, temperature, *, axis):
    """One all-reduce: the sum in the high bits of an integer, and the token in the low ones."""
    scores = _scores(logits, noise, temperature, axis)
    v = lax.axis_size(axis) * scores.shape[1]
    token = lax.axis_index(axis) * scores.shape[1] + jnp.argmax(scores, 1)
    packed = jnp.clip(scores.max(1) * 16, -(2**18), 2**18).astype(jnp.int32) * v + (v - 1 - token)
    return (v - 1 - lax.pmax(packed, axis) % v).astype(jnp.int32)


@wrong("values")
def vocabulary_of_thirteen_or_sixteen(logits, noise, temperature, *, axis):
    if logits.shape[1] not in (13, 16):
        raise KeyError("another vocabulary")
    return largest_negative_token(logits, noise, temperature, axis=axis)


@wrong("values")
def one_device_refused(logits, noise, temperature, *, axis):
    if lax.axis_size(axis) == 1:
        raise KeyError("nothing is split")
    return largest_negative_token(logits, noise, temperature, axis=axis)


@wrong("values")
def tokens_in_the_dtype_of_the_logits(logits, noise, temperature, *, axis):
    token = largest_negative_token(logits, noise, temperature, axis=axis)
    return token.astype(logits.dtype)


@wrong("communication")
def summed_among_zeros(logits, noise, temperature, *, axis):
    """All logits of a row by an all-reduce of zeros and the own ones."""
    scores = jnp.maximum(_scores(logits, noise, temperature, axis), -1e9)
    n, v = lax.axis_size(axis), scores.shape[1]
    whole = jnp.zeros((len(scores), n * v))
    start = lax.axis_index(axis) * v
    whole = lax.dynamic_update_slice_in_dim(vary(whole, (axis,)), scores, start, 1)
    return jnp.argmax(lax.psum(whole, axis), 1).astype(jnp.int32)


@wrong("communication")
def three_numbers(logits, noise, temperature, *, axis):
    """The largest sum, whether there is one, and the token."""
    token = largest_negative_token(logits, noise, temperature, axis=axis)
    scores = _scores(logits, noise, temperature, axis)
    seen = lax.psum(jnp.isfinite(scores).sum(1), axis)
    return token + 0 * seen
