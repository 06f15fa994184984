"""What the exercises of the lesson on zero have in common."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxpar.contracts.base import Expected
from jaxpar.contracts.blocks import mesh_order, whole_on_all
from jaxpar.contracts.case import ArraySpec, Case

SCATTERS = ("reduce_scatter", "all_to_all", "permute")


def sharded_rows(case: Case, tree: Any) -> list[Expected]:
    """Of every leaf, the rows of dim 0 that belong to each device of the axis; scalars whole."""
    return [
        whole if leaf.ndim == 0 else Expected(own_rows(case, leaf), whole.blocks)
        for leaf, whole in zip(jax.tree.leaves(tree), whole_on_all(case, tree), strict=True)
    ]


def own_rows(case: Case, leaf: jax.Array) -> jax.Array:
    """The rows of a leaf that belong to each device of the axis, [*mesh sizes, *local shape]."""
    axis = case.kwargs["axis"]
    n, others = case.sizes[axis], [size for name, size in case.sizes.items() if name != axis]
    rows = leaf.reshape(n, *[1] * len(others), -1, *leaf.shape[1:])
    return mesh_order(case, jnp.broadcast_to(rows, (n, *others, *rows.shape[1 + len(others) :])))


def matrices(d: int, f: int, rows: int, layout: str) -> dict[str, ArraySpec]:
    """Two leaves; `rows` times as many rows as one device has of them."""
    return {
        "w": ArraySpec((rows * d, f), layout),
        "bias": ArraySpec((rows * f,), layout.split()[0]),
    }
