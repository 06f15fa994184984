"""What the exercises of the lesson on smaller models have in common."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpar.contracts.base import Expected
from jaxpar.contracts.case import Case


def on_devices(case: Case, array: np.ndarray) -> np.ndarray:
    """What the devices have, in float64: [*mesh sizes, *local shape].

    The first dim is split over every mesh axis, in the order of the mesh.
    """
    return np.asarray(array, np.float64).reshape(*case.sizes.values(), -1, *array.shape[1:])


def own_rows(case: Case, array: Array) -> Expected:
    """An array of which each device must hold its rows; they are split as `on_devices` says."""
    whole = jnp.broadcast_to(array, (*case.sizes.values(), *array.shape))
    return Expected(array.reshape(*case.sizes.values(), -1, *array.shape[1:]), whole)


def place_in(case: Case, at: tuple[int, ...]) -> str:
    """A place in blocks [*mesh sizes, *local shape], in words."""
    device = ", ".join(f"{name}={i}" for name, i in zip(case.sizes, at, strict=False))
    return f"device {device}, element {list(at[len(case.sizes) :])}"


def first_beyond(error: np.ndarray, bound: np.ndarray) -> tuple[int, ...] | None:
    """The first place where an error is above its bound, or NaN; None if there is none."""
    wrong = ~(error <= bound)
    return tuple(map(int, np.argwhere(wrong)[0])) if wrong.any() else None
