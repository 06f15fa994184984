"""What the exercises of the lesson on vocabulary and sequence have in common."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxpar.contracts.base import Expected
from jaxpar.contracts.case import Case


def other_sizes(case: Case) -> list[int]:
    """The sizes of the mesh, 1 for the axis that splits the vocabulary."""
    return [1 if name == case.kwargs["axis"] else n for name, n in case.sizes.items()]


def of_batch(case: Case, x: jax.Array) -> list[Expected]:
    """Dim 0 split over all axes but the one that splits the vocabulary."""
    sizes = tuple(case.sizes.values())
    blocks = x.reshape(*other_sizes(case), -1, *x.shape[1:])
    return [Expected(jnp.broadcast_to(blocks, (*sizes, *blocks.shape[len(sizes) :])))]
