"""Latency and bandwidth of a link, fitted to times."""

from math import inf

import numpy as np
import pytest

from jaxpar.cost.communication import Link
from jaxpar.cost.link_fit import fit_link, fit_small_and_large

SIZES = [8, 2**15, 2**20, 2**22, 2**24]


def seconds(link: Link, sizes: list[int]) -> list[float]:
    return [link.latency_seconds + size / link.bytes_per_second for size in sizes]


def test_a_link_is_found_again() -> None:
    link = Link(50e-6, 2e9)
    fit = fit_link(SIZES, seconds(link, SIZES))
    assert fit.link.latency_seconds == pytest.approx(link.latency_seconds)
    assert fit.link.bytes_per_second == pytest.approx(link.bytes_per_second)
    assert fit.error == pytest.approx(0, abs=1e-9)


def test_small_and_large_messages_have_a_fit_each() -> None:
    fast, slow = Link(100e-6, 4e9), Link(200e-6, 0.5e9)
    times = seconds(fast, SIZES[:2]) + seconds(slow, SIZES[2:])
    small, large = fit_small_and_large([*SIZES[:2], *SIZES[3:]], [*times[:2], *times[3:]])
    assert small and large
    assert small.link.bytes_per_second == pytest.approx(4e9)
    assert large.link.bytes_per_second == pytest.approx(0.5e9)
    assert fit_link(SIZES, times).error > 0.2  # one line fits neither
    assert fit_small_and_large(SIZES[:1], [1.0]) == (None, None)


@pytest.mark.parametrize(
    ("sizes", "times", "zero"),
    [(SIZES[:3], (1.0, 1.1, 0.9), "beta"), (SIZES[2:], (1e-3, 1e-2, 1e-1), "alpha")],
)
def test_what_no_line_fits_gets_the_best_with_a_zero(
    sizes: list[int], times: tuple[float, ...], zero: str
) -> None:
    fit = fit_link(sizes, times)
    alpha, bandwidth = fit.link.latency_seconds, fit.link.bytes_per_second
    assert (alpha == 0, bandwidth == inf) == (zero == "alpha", zero == "beta")

    def squares(alpha: float, beta: float) -> float:
        return sum(
            ((alpha + beta * size) / time - 1) ** 2 for size, time in zip(sizes, times, strict=True)
        )

    best = squares(alpha, 1 / bandwidth)
    alphas = np.linspace(0, 2 * max(times), 50)
    betas = np.linspace(0, 2 * max(times) / sizes[-1], 50)
    assert best <= min(squares(a, b) for a in alphas for b in betas) + 1e-12


@pytest.mark.parametrize(
    ("sizes", "times"), [([8], [1.0]), ([8, 8], [1.0, 1.0]), ([8, 16], [1.0, 0.0])]
)
def test_too_few_times_are_refused(sizes: list[int], times: list[float]) -> None:
    with pytest.raises(ValueError, match="give two different sizes or more, each with its time"):
        fit_link(sizes, times)
