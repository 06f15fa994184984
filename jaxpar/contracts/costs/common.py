"""What the exercises of the lesson on costs have in common."""

from __future__ import annotations

import numpy as np

Link = tuple[float, float]  # seconds of latency, and bytes per second

NVLINK: Link = (2e-6, 450e9)
NDR: Link = (10e-6, 50e9)
ETHERNET: Link = (5e-5, 1.25e9)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number between two others, small ones as often as large ones."""
    return float(low * (high / low) ** rng.random())


def random_link(rng: np.random.Generator) -> Link:
    """A link with any latency and bandwidth, from Ethernet's to NVLink's."""
    return log_uniform(rng, 1e-6, 1e-4), log_uniform(rng, 1e9, 1e12)
