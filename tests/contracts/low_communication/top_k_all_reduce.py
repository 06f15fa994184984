"""Answers to top_k_all_reduce: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from tests.contracts.answers import right


def _check(x, k):
    if k < 1 or k > x.size:
        raise ValueError(f"{k=} of {x.size}")


def _added(values, places, size, axis):
    values, places = (lax.all_gather(one, axis).reshape(-1) for one in (values, places))
    return jnp.zeros(size, jnp.float32).at[places].add(values) / lax.axis_size(axis)


@right
def by_sorting(x, error, *, axis, k):
    _check(x, k)
    v = x + error
    places = jnp.argsort(jnp.abs(v))[-k:]
    return _added(v[places], places, v.size, axis), v.at[places].set(0)


@right
def places_round_a_ring(x, error, *, axis, k):
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), k)[1]
    sent = v[places], places
    total = jnp.zeros_like(v).at[places].add(v[places])
    for _ in range(lax.axis_size(axis) - 1):
        sent = tuple(hop(one, axis) for one in sent)
        total = total.at[sent[1]].add(sent[0])
    return total / lax.axis_size(axis), v.at[places].set(0)


@right
def places_in_two_bytes_where_they_fit(x, error, *, axis, k):
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), k)[1]
    places = places.astype(jnp.uint16) if v.size <= 2**16 else places
    return _added(v[places], places, v.size, axis), v.at[places].set(0)


@right
def sent_in_one_array(x, error, *, axis, k):
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), k)[1]
    both = jnp.stack([v[places], lax.bitcast_convert_type(places, jnp.float32)])
    values, places_of_all = jnp.moveaxis(lax.all_gather(both, axis), 1, 0)
    whole = lax.bitcast_convert_type(places_of_all, jnp.int32)
    total = jnp.zeros_like(v).at[whole].add(values)
    return total / lax.axis_size(axis), v.at[places].set(0)


@right
def rounded_to_bfloat16_and_kept(x, error, *, axis, k):
    """What rounding a number loses is left as well."""
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), k)[1]
    sent = v[places].astype(jnp.bfloat16)
    wide = sent.astype(jnp.float32)
    values = lax.all_gather(sent, axis).astype(jnp.float32)
    total = jnp.zeros_like(v).at[lax.all_gather(places, axis)].add(values)
    return total / lax.axis_size(axis), v.at[places].add(-wide)


@right
def one_device_after_another(x, error, *, axis, k):
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), k)[1]
    every = lax.all_gather(v[places], axis), lax.all_gather(places, axis)

    def add(total, sent):
        values, places = sent
        return total.at[places].add(values), None

    total, _ = lax.scan(add, jnp.zeros_like(v), every)
    return total / lax.axis_size(axis), v.at[places].set(0)


@wrong("values")
def rounded_to_bfloat16_and_lost(x, error, *, axis, k):
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), k)[1]
    sent = v[places].astype(jnp.bfloat16)
    return _added(sent.astype(jnp.float32), places, v.size, axis), v.at[places].set(0)


@wrong("values")
def nothing_sent(x, error, *, axis, k):
    _check(x, k)
    v = x + error
    return 0 * v, v


@wrong("values")
def one_number_fewer(x, error, *, axis, k):
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), max(1, k - 1))[1]
    return _added(v[places], places, v.size, axis), v.at[places].set(0)


@wrong("values")
def the_first_k(x, error, *, axis, k):
    _check(x, k)
    v = x + error
    places = jnp.arange(k)
    return _added(v[:k], places, v.size, axis), v.at[:k].set(0)


@wrong("values")
def not_a_number(x, error, *, axis, k):
    mean, left = by_sorting(x, error, axis=axis, k=k)
    return mean.at[-1].set(jnp.nan), left


@wrong("values")
def error_that_is_not_a_number(x, error, *, axis, k):
    mean, left = by_sorting(x, error, axis=axis, k=k)
    return mean, left.at[-1].set(jnp.nan)


@wrong("values")
def half_of_each_sent(x, error, *, axis, k):
    """Half of each number is sent, and half is left."""
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), k)[1]
    return _added(v[places] / 2, places, v.size, axis), v.at[places].multiply(0.5)


@wrong("values")
def twice_as_many(x, error, *, axis, k):
    """More than k are sent, each in fewer bits, so that the bytes are the same."""
    _check(x, k)
    v, size = x + error, min(x.size, 2 * k)
    places = lax.top_k(jnp.abs(v), size)[1].astype(jnp.uint16)
    sent = v[places].astype(jnp.bfloat16)
    wide = lax.all_gather(sent, axis).astype(jnp.float32)
    total = jnp.zeros_like(v).at[lax.all_gather(places, axis)].add(wide)
    return total / lax.axis_size(axis), v.at[places].add(-sent.astype(jnp.float32))


@wrong("values")
def mean_on_one_device_only(x, error, *, axis, k):
    mean, left = by_sorting(x, error, axis=axis, k=k)
    return jnp.where(lax.axis_index(axis) == 0, mean, 0), left


@wrong("communication")
def mean_of_all_that_is_sent_and_more(x, error, *, axis, k):
    """A count of the senders travels as well, and is not needed."""
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), k)[1]
    ones = _added(jnp.ones_like(v[places]), places, v.size, axis)
    mean = _added(v[places], places, v.size, axis)
    return jnp.where(ones > 0, mean, 0), v.at[places].set(0)


@wrong("errors")
def clipped_k(x, error, *, axis, k):
    return by_sorting(x, error, axis=axis, k=min(max(k, 1), x.size))


@wrong("values")
def places_always_in_two_bytes(x, error, *, axis, k):
    """A gradient has more than 65,536 numbers."""
    _check(x, k)
    v = x + error
    places = lax.top_k(jnp.abs(v), k)[1].astype(jnp.uint16)
    return _added(v[places], places, v.size, axis), v.at[places].set(0)


@wrong("values")
def added_in_the_dtype_of_x(x, error, *, axis, k):
    low = (x + error.astype(x.dtype)).astype(jnp.float32)
    return by_sorting(low, 0 * error, axis=axis, k=k)


@wrong("values")
def largest_of_each_half(x, error, *, axis, k):
    """Half of the k numbers from each half of the array, which two cores could look for."""
    _check(x, k)
    v = x + error
    middle, few = v.size // 2, k // 2
    first = lax.top_k(jnp.abs(v[:middle]), min(few, middle))[1]
    second = middle + lax.top_k(jnp.abs(v[middle:]), k - first.size)[1]
    places = jnp.concatenate([first, second])
    return _added(v[places], places, v.size, axis), v.at[places].set(0)


@wrong("values")
def error_kept_in_bfloat16(x, error, *, axis, k):
    mean, left = by_sorting(x, error, axis=axis, k=k)
    return mean, left.astype(jnp.bfloat16).astype(jnp.float32)


@wrong("communication")
def places_as_a_mask(x, error, *, axis, k):
    """A bit for each number says which are sent; that is more than k places where k is small."""
    _check(x, k)
    v = x + error
    places = jnp.sort(lax.top_k(jnp.abs(v), k)[1])
    mask = jnp.packbits(jnp.zeros(v.size, bool).at[places].set(True))
    masks = lax.all_gather(mask, axis)
    values = lax.all_gather(v[places], axis)
    mine = lax.all_gather(places, axis)
    seen = jnp.unpackbits(masks, axis=1)[:, : v.size].sum(axis=0)
    total = jnp.zeros_like(v).at[mine].add(values)
    return jnp.where(seen > 0, total, 0) / lax.axis_size(axis), v.at[places].set(0)
