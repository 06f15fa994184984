"""What the exercises of the lesson on planning have in common."""

from __future__ import annotations

import numpy as np


def random_size(rng: np.random.Generator, low: float, high: float) -> int:
    """Any whole number between, small ones as often as large ones."""
    return int(low * (high / low) ** rng.random())
