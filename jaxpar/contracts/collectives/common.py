"""What the exercises of the lesson on collectives have in common."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import MemoryLimit
from jaxpar.contracts.case import ArraySpec, Case, Sizes

# An all-to-all and a sum hold twice what an all-reduce does; gathering every x holds n times x.
NO_GATHER = MemoryLimit("at most 3 times the library's bytes of intermediate results", multiple=3.0)
ALL_BUT_ALL_REDUCE = ("reduce_scatter", "all_gather", "all_to_all", "permute", "broadcast")


def rooted(*cases: tuple[str, tuple[int, ...], str, str, int]) -> tuple[Case, ...]:
    """Cases with one array x and a root: mesh, shape, layout, axis and root of each."""
    return tuple(
        Case(mesh, {"x": ArraySpec(shape, layout)}, {"axis": axis, "root": root})
        for mesh, shape, layout, axis, root in cases
    )


def chunk_bytes(sizes: Sizes, dtype: str | None = None) -> int:
    """Bytes of one of n chunks of x, the last one padded; of results of another dtype, if given."""
    own = jnp.dtype(sizes.case.args["x"].dtype)
    elements = sizes.bytes("x") // own.itemsize
    return -(-elements // sizes.n()) * jnp.dtype(dtype or own).itemsize


def from_root(x: Array, axis: str, root: int) -> Array:
    """The x of the root, and zeros on the other devices."""
    return jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x))
