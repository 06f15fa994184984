"""Latency and bandwidth of a link, fitted to measured times of messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.optimize import nnls

from jaxpar.cost.communication import Link

SMALL_BYTES = 2**20
"""Up to here a message is small: caches and protocols let no line fit small and large ones."""


@dataclass(frozen=True)
class Fit:
    """A line through measured times.

    Attributes:
        link: its latency (alpha) and bandwidth (1 / beta).
        error: how far the worst of the times is from it, over that time.
    """

    link: Link
    error: float


def fit_link(sizes: Sequence[float], seconds: Sequence[float]) -> Fit:
    """The latency and bandwidth that fit times of messages of these bytes best.

    Math: the least sum of squares of (alpha + beta * bytes) / seconds - 1, with alpha and
        beta 0 or more; where beta is 0, the bandwidth is infinite

    Raises:
        ValueError: there are fewer than two different sizes, or a number is not above 0.
    """
    if len(set(sizes)) < 2 or len(sizes) != len(seconds) or min(*sizes, *seconds) <= 0:
        raise ValueError(
            f"fit_link: sizes {list(sizes)} with times {list(seconds)}; give two different sizes "
            "or more, each with its time, all above 0"
        )
    largest = max(sizes)  # in these units both columns have numbers of one order
    columns = np.stack([np.ones(len(sizes)), np.array(sizes) / largest], axis=1)
    rows = columns / np.array(seconds)[:, None]
    (alpha, beta), _ = nnls(rows, np.ones(len(sizes)))
    errors = rows @ np.array([alpha, beta]) - 1
    bandwidth = largest / beta if beta else inf
    return Fit(Link(float(alpha), float(bandwidth)), float(np.abs(errors).max()))


def fit_small_and_large(
    sizes: Sequence[float], seconds: Sequence[float]
) -> tuple[Fit | None, Fit | None]:
    """A fit to messages up to 1 MiB, and one from there on; None where there are too few."""
    points = list(zip(sizes, seconds, strict=True))
    parts = (
        [one for one in points if one[0] <= SMALL_BYTES],
        [one for one in points if one[0] >= SMALL_BYTES],
    )
    small, large = (fit_link(*zip(*part, strict=True)) if len(part) > 1 else None for part in parts)
    return small, large
