"""What the exercises of the lesson on costs have in common."""

from __future__ import annotations

import numpy as np

NVLINK, NDR, ETHERNET = (2e-6, 450e9), (10e-6, 50e9), (5e-5, 1.25e9)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Any number between, small ones as often as large ones."""
    return float(low * (high / low) ** rng.random())


def random_link(rng: np.random.Generator) -> tuple[float, float]:
    """The latency and the bandwidth of a link, from Ethernet's to NVLink's."""
    return log_uniform(rng, 1e-6, 1e-4), log_uniform(rng, 1e9, 1e12)
