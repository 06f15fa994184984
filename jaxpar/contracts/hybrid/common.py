"""What the exercises on gradients that are split over different axes have in common."""

from __future__ import annotations

import math
from collections.abc import Collection

import jax.numpy as jnp
from jax import Array

from jaxpar.contracts.case import Case
from jaxpar.mesh import axes_of, parse_layout, spec

EVERY_KIND = ("all_reduce", "all_to_all", "permute")
"""An all-reduce may be a reduce-scatter and an all-gather, or one of the two."""


def held(case: Case, x: Array, layout: str, summed: Collection[str] = ()) -> Array:
    """What each device holds of x, or of the sum over some axes: [*mesh sizes, *local shape]."""
    names = [axis for axis in case.sizes if axis not in axes_of(spec(layout))]
    shape, dims = [1] * len(names), []
    for size, (dim, axes) in zip(x.shape, parse_layout(layout), strict=True):
        parts = [case.sizes[axis] for axis in axes]
        names += [*axes, dim]
        shape += [*parts, size // math.prod(parts)]
        dims.append(dim)
    cut = x.reshape(shape).transpose([names.index(name) for name in (*case.sizes, *dims)])
    places = tuple(place for place, axis in enumerate(case.sizes) if axis in summed)
    blocks = jnp.sum(cut, axis=places, keepdims=True)
    return jnp.broadcast_to(blocks, (*case.sizes.values(), *blocks.shape[len(case.sizes) :]))
