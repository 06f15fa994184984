"""Latency and bandwidth of a link, fitted to measured times of messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

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
    # Rows of the design matrix, divided by the time: a for alpha, b for beta; the target is 1.
    a = [1 / time for time in seconds]
    b = [size / time for size, time in zip(sizes, seconds, strict=True)]
    aa, ab, bb = (_dot(*pair) for pair in ((a, a), (a, b), (b, b)))
    determinant = aa * bb - ab * ab
    alpha = (bb * sum(a) - ab * sum(b)) / determinant
    beta = (aa * sum(b) - ab * sum(a)) / determinant
    # Where either is below 0, the best fit has 0 for one of them.
    lines = [(alpha, beta)] if min(alpha, beta) > 0 else [(0.0, sum(b) / bb), (sum(a) / aa, 0.0)]
    alpha, beta = min(lines, key=lambda line: sum(map(_squared, _errors(*line, a, b))))
    return Fit(Link(alpha, 1 / beta if beta else inf), max(map(abs, _errors(alpha, beta, a, b))))


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


def _errors(alpha: float, beta: float, a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [alpha * x + beta * y - 1 for x, y in zip(a, b, strict=True)]


def _squared(x: float) -> float:
    return x * x


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
