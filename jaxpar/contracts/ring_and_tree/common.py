"""What the exercises of the lesson on ring and tree have in common."""

from __future__ import annotations

import jax
from jax import lax

from jaxpar.contracts.case import ArraySpec, Case, Sizes


def doubling_steps(sizes: Sizes) -> int:
    """ceil(log2 n)."""
    return (sizes.n() - 1).bit_length()


def ring_case(mesh: str, x: ArraySpec, **kwargs: str | int) -> Case:
    """A case with one array x."""
    return Case(mesh, {"x": x}, kwargs)


def hop(x: jax.Array, axis: str, by: int = 1) -> jax.Array:
    """What arrives when every device sends its x `by` places on."""
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, (j + by) % n) for j in range(n)])


def distances(n: int) -> list[int]:
    """1, 2, 4, ... below n."""
    return [1 << k for k in range((n - 1).bit_length())]
