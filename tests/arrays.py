"""Random arrays for tests, which depend on nothing but their shape."""

import numpy as np


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)
