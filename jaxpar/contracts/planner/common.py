"""What the exercises of the lesson on planner have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def random_size(rng: np.random.Generator, low: float, high: float) -> int:
    """Any whole number between, small ones as often as large ones."""
    return int(low * (high / low) ** rng.random())


def scaled(right: Callable, factor: float) -> Callable:
    """The right result, times a number."""

    def wrong(*args: Any, **kwargs: Any) -> float:
        return right(*args, **kwargs) * factor

    return wrong
