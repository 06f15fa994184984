"""What the exercises of the lesson on costs have in common."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

Link = tuple[float, float]  # seconds of latency, and bytes per second

NVLINK: Link = (2e-6, 450e9)
NDR: Link = (10e-6, 50e9)
ETHERNET: Link = (5e-5, 1.25e9)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number between two others, small ones as often as large ones."""
    return float(low * (high / low) ** rng.random())


def log_spread(rng: np.random.Generator, low: float, high: float, count: int) -> list[float]:
    """So many numbers between two others, in any order: one from each of `count` equal parts.

    The parts are equal on a logarithmic scale, so that every seed draws small and large ones, and
    no limit written into an answer passes with some seeds only.
    """
    places = (np.arange(count) + rng.random(count)) / count
    return [float(low * (high / low) ** place) for place in rng.permutation(places)]


def not_positive(right: tuple[float, ...]) -> Iterator[tuple[float, ...]]:
    """These positive numbers with one of them 0 or negative, or two negative: a product above 0."""
    for place, number in enumerate(right):
        for wrong in (0, -number):
            yield (*right[:place], wrong, *right[place + 1 :])
    for pair in combinations(range(len(right)), 2):
        yield tuple(-number if place in pair else number for place, number in enumerate(right))


def random_link(rng: np.random.Generator) -> Link:
    """A link with any latency and bandwidth, from Ethernet's to NVLink's."""
    return log_uniform(rng, 1e-6, 1e-4), log_uniform(rng, 1e9, 1e12)
