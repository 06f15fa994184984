"""Answers to young_daly_interval: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def by_a_power(checkpoint_seconds, mtbf_seconds):
    if checkpoint_seconds < 0 or mtbf_seconds < 0:
        raise ValueError
    return (2 * checkpoint_seconds * mtbf_seconds) ** 0.5


@right
def by_two_roots(checkpoint_seconds, mtbf_seconds):
    return math.sqrt(2) * math.sqrt(checkpoint_seconds) * math.sqrt(mtbf_seconds)


@right
def by_equal_losses(checkpoint_seconds, mtbf_seconds):
    if min(checkpoint_seconds, mtbf_seconds) < 0:
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
    if checkpoint_seconds < 0 or mtbf_seconds < 0:
        raise ValueError
    return np.sqrt(2.0 * checkpoint_seconds * (mtbf_seconds + restart))


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
