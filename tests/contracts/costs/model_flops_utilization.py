"""Answers to model_flops_utilization: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops):
    if not all(n > 0 for n in (tokens_per_second, flops_per_token, devices, peak_flops)):
        raise ValueError("all must be positive")
    ideal = flops_per_token / (devices * peak_flops)
    return ideal / (1 / tokens_per_second)


@right
def by_logarithms(tokens_per_second, flops_per_token, devices, peak_flops):
    log = math.log  # raises ValueError where it must
    done, possible = log(tokens_per_second) + log(flops_per_token), log(devices) + log(peak_flops)
    return math.exp(done - possible)


@right
def each_device_alone(tokens_per_second, flops_per_token, devices, peak_flops):
    if tokens_per_second <= 0 or flops_per_token <= 0 or devices <= 0 or peak_flops <= 0:
        raise ValueError
    return (tokens_per_second / devices) * (flops_per_token / peak_flops)


@right
def in_fractions(*numbers):
    if any(number <= 0 for number in numbers):
        raise ValueError(numbers)
    tokens, flops, devices, peak = map(Fraction, numbers)
    return float(tokens * flops / devices / peak)


@right
def in_floats_of_numpy(*numbers):
    numbers = np.array(numbers, float)
    if (numbers <= 0).any():
        raise ValueError(numbers)
    return np.prod(numbers ** [1, 1, -1, -1])


@wrong("values")
def without_a_check(tokens_per_second, flops_per_token, devices, peak_flops):
    return tokens_per_second * flops_per_token / (devices * peak_flops)


@wrong("values")
def only_shares_below_0_refused(tokens_per_second, flops_per_token, devices, peak_flops):
    mfu = without_a_check(tokens_per_second, flops_per_token, devices or 0.5, peak_flops or 0.5)
    if mfu <= 0 or not devices * peak_flops:
        raise ValueError(mfu)
    return mfu


@wrong("values")
def negative_devices_allowed(tokens_per_second, flops_per_token, devices, peak_flops):
    peak = abs(devices * peak_flops)
    return by_seconds_of_a_token(tokens_per_second, flops_per_token, 1, peak)


@wrong("values")
def to_four_digits(tokens_per_second, flops_per_token, devices, peak_flops):
    mfu = by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)
    return round(mfu, 4)


@wrong("values")
def a_hundred_thousandth_off(tokens_per_second, flops_per_token, devices, peak_flops):
    mfu = by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)
    return mfu * 1.00001


@wrong("values")
def few_devices_as_eight(tokens_per_second, flops_per_token, devices, peak_flops):
    mfu = by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)
    return mfu * devices / max(devices, 8)


@wrong("values")
def in_words(tokens_per_second, flops_per_token, devices, peak_flops):
    mfu = by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)
    return f"{mfu:.1%}"


@wrong("values")
def refused_by_the_rates(tokens_per_second, flops_per_token, devices, peak_flops):
    done, possible = tokens_per_second * flops_per_token, devices * peak_flops
    if done <= 0 or possible <= 0:
        raise ValueError
    return done / possible


@wrong("values")
def refused_by_the_quotients(tokens_per_second, flops_per_token, devices, peak_flops):
    if not devices or not peak_flops:
        raise ValueError
    each, seconds = tokens_per_second / devices, flops_per_token / peak_flops
    if each <= 0 or seconds <= 0:
        raise ValueError
    return each * seconds


@wrong("values")
def at_least_a_thousandth(tokens_per_second, flops_per_token, devices, peak_flops):
    mfu = by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)
    return max(mfu, 1e-3)


@wrong("values")
def tokens_counted_whole(tokens_per_second, flops_per_token, devices, peak_flops):
    tokens = max(int(tokens_per_second), min(tokens_per_second, 1))
    return by_seconds_of_a_token(tokens, flops_per_token, devices, peak_flops)


@wrong("values")
def peaks_of_today(tokens_per_second, flops_per_token, devices, peak_flops):
    peak = min(peak_flops, 2e16)
    return by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak)


@wrong("values")
def at_most_20_000_devices(tokens_per_second, flops_per_token, devices, peak_flops):
    devices = min(devices, 20_000)
    return by_seconds_of_a_token(tokens_per_second, flops_per_token, devices, peak_flops)


@wrong("values")
def in_float32_of_jax(*numbers):
    if min(numbers) <= 0:
        raise ValueError
    tokens, flops, devices, peak = jnp.array(numbers, float)
    return tokens / devices * (flops / peak)
