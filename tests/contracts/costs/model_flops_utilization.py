"""Answers to model_flops_utilization: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

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
