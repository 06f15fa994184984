"""What the exercises of the lesson on collectives have in common."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import MemoryLimit
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.mesh import parse_layout

# An all-to-all and a sum hold twice what an all-reduce does; gathering every x holds n times x.
NO_GATHER = MemoryLimit("at most 3 times the library's bytes of intermediate results", multiple=3.0)
ALL_BUT_ALL_REDUCE = ("reduce_scatter", "all_gather", "all_to_all", "permute", "broadcast")


def rooted(*cases: tuple[str, tuple[int, ...], str, str, int]) -> tuple[Case, ...]:
    """Cases with one array x and a root: mesh, shape, layout, axis and root of each."""
    return tuple(
        Case(mesh, {"x": ArraySpec(shape, layout)}, {"axis": axis, "root": root})
        for mesh, shape, layout, axis, root in cases
    )


def spoil_all_but_root(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts NaN into the x of all devices but the root, if it holds floats."""
    (x,), axis, root = inputs, case.kwargs["axis"], case.kwargs["root"]
    ((_, axes), *_) = parse_layout(case.args["x"].layout)
    if jnp.issubdtype(x.dtype, jnp.floating):
        blocks = x.reshape(*(case.sizes[name] for name in axes), -1)
        others = np.arange(case.sizes[axis]) != root
        np.moveaxis(blocks, axes.index(axis), 0)[others] = np.nan


def from_root(x: Array, axis: str, root: int) -> Array:
    """The x of the root, and zeros on the other devices."""
    return jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))
