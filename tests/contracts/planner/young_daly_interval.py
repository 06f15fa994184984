"""Answers to young_daly_interval: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def by_a_power(checkpoint_seconds, mtbf_seconds):
    if not (checkpoint_seconds >= 0 and mtbf_seconds >= 0):
        raise ValueError
    return (2 * checkpoint_seconds * mtbf_seconds) ** 0.5


@right
def by_two_roots(checkpoint_seconds, mtbf_seconds):
    if math.isnan(checkpoint_seconds) or math.isnan(mtbf_seconds):
        raise ValueError("NaN")
    return math.sqrt(2) * math.sqrt(checkpoint_seconds) * math.sqrt(mtbf_seconds)


@right
def by_equal_losses(checkpoint_seconds, mtbf_seconds):
    if not checkpoint_seconds >= 0 or not mtbf_seconds >= 0:
        raise ValueError
    if not checkpoint_seconds * mtbf_seconds:
        return 0
    t = checkpoint_seconds + mtbf_seconds
    for _ in range(200):  # Newton's method on t*t = 2CM
        t = (t + 2 * checkpoint_seconds * mtbf_seconds / t) / 2
    return t


@right
def by_daly_to_first_order(checkpoint_seconds, mtbf_seconds):
    restart = 0
    if not (checkpoint_seconds >= 0 and mtbf_seconds >= 0):
        raise ValueError
    return np.sqrt(2.0 * checkpoint_seconds * (mtbf_seconds + restart))


@right
def by_logarithms(checkpoint_seconds, mtbf_seconds):
    if not (checkpoint_seconds >= 0 and mtbf_seconds >= 0):
        raise ValueError
    if checkpoint_seconds == 0 or mtbf_seconds == 0:
        return 0.0
    return math.exp((math.log(2) + math.log(checkpoint_seconds) + math.log(mtbf_seconds)) / 2)


@right
def by_a_hypotenuse(checkpoint_seconds, mtbf_seconds):
    if not all(seconds >= 0 for seconds in (checkpoint_seconds, mtbf_seconds)):
        raise ValueError
    product = Fraction(checkpoint_seconds) * Fraction(mtbf_seconds)
    side = math.sqrt(product)
    return math.hypot(side, side)


@wrong("values")
def compared_with_zero(checkpoint_seconds, mtbf_seconds):
    if min(checkpoint_seconds, mtbf_seconds) < 0:
        raise ValueError
    return math.sqrt(2 * checkpoint_seconds * mtbf_seconds)


@wrong("values")
def one_nan_at_least_refused(checkpoint_seconds, mtbf_seconds):
    if not max(checkpoint_seconds, mtbf_seconds, key=lambda x: -x) >= 0:
        raise ValueError
    return math.sqrt(2 * checkpoint_seconds * mtbf_seconds)


@wrong("values")
def daly_to_higher_order(checkpoint_seconds, mtbf_seconds):
    first = by_a_power(checkpoint_seconds, mtbf_seconds)
    if not first or checkpoint_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    x = math.sqrt(checkpoint_seconds / (2 * mtbf_seconds))
    return first * (1 + x / 3 + x * x / 9) - checkpoint_seconds


@wrong("values")
def a_root_refuses(checkpoint_seconds, mtbf_seconds):
    return math.sqrt(2 * checkpoint_seconds * mtbf_seconds)


@wrong("values")
def nan_refuses(checkpoint_seconds, mtbf_seconds):
    with np.errstate(invalid="ignore"):
        return float(np.sqrt(2.0 * checkpoint_seconds) * np.sqrt(float(mtbf_seconds)))


@wrong("values")
def to_a_tenth(checkpoint_seconds, mtbf_seconds):
    return round(by_a_power(checkpoint_seconds, mtbf_seconds), 1)


@wrong("values")
def at_most_the_mtbf(checkpoint_seconds, mtbf_seconds):
    return min(mtbf_seconds, by_a_power(checkpoint_seconds, mtbf_seconds))


@wrong("values")
def a_second_at_least(checkpoint_seconds, mtbf_seconds):
    interval = by_a_power(checkpoint_seconds, mtbf_seconds)
    return max(1.0, interval) if interval else interval


@wrong("values")
def a_month_at_most(checkpoint_seconds, mtbf_seconds):
    return min(30 * 86_400, by_a_power(checkpoint_seconds, mtbf_seconds))


@wrong("values")
def to_a_millionth(checkpoint_seconds, mtbf_seconds):
    return round(by_a_power(checkpoint_seconds, mtbf_seconds), 6)


@wrong("values")
def long_checkpoints_refused(checkpoint_seconds, mtbf_seconds):
    if checkpoint_seconds > 2 * mtbf_seconds > 0:
        raise ValueError
    return by_a_power(checkpoint_seconds, mtbf_seconds)


@wrong("values")
def long_checkpoints_at_once(checkpoint_seconds, mtbf_seconds):
    if checkpoint_seconds > 1000 * mtbf_seconds:
        return 0.0
    return by_a_power(checkpoint_seconds, mtbf_seconds)


@wrong("values")
def zero_before_the_checks(checkpoint_seconds, mtbf_seconds):
    if checkpoint_seconds == 0 or mtbf_seconds == 0:
        return 0.0
    return by_a_power(checkpoint_seconds, mtbf_seconds)


@wrong("values")
def a_negative_second_refused(checkpoint_seconds, mtbf_seconds):
    if int(checkpoint_seconds) < 0 or int(mtbf_seconds) < 0:
        raise ValueError
    return abs(by_a_power(abs(checkpoint_seconds), abs(mtbf_seconds)))


@wrong("values")
def in_float32_of_jax(checkpoint_seconds, mtbf_seconds):
    if not checkpoint_seconds >= 0 or not mtbf_seconds >= 0:
        raise ValueError
    return jnp.sqrt(2.0 * checkpoint_seconds * mtbf_seconds)
