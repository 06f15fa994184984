"""What the exercises of the lesson on ZeRO have in common."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxpar.contracts.base import Expected
from jaxpar.contracts.blocks import mesh_order, whole_on_all
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.data_parallel.common import divided
from jaxpar.contracts.steps import gathered, own_shard, scattered

SCATTERS = ("reduce_scatter", "all_to_all", "permute")


def sharded_rows(case: Case, tree: Any) -> list[Expected]:
    """The rows of dim 0 of every leaf that belong to each device of the axis; scalars are whole.

    So is a leaf on one device, which cannot return more than it must.
    """
    alone = case.sizes[case.kwargs["axis"]] == 1
    return [
        whole if alone or leaf.ndim == 0 else Expected(_rows_of_each(case, leaf), whole.blocks)
        for leaf, whole in zip(jax.tree.leaves(tree), whole_on_all(case, tree), strict=True)
    ]


def _rows_of_each(case: Case, leaf: Array) -> Array:
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


def own_rows(tree: Any, axis: str) -> Any:
    """This device's rows of leaves that it holds whole."""
    return jax.tree.map(lambda leaf: own_shard(leaf, axis), tree)


def mean_rows(tree: Any, axis: str) -> Any:
    """This device's rows of the mean over the devices."""
    return divided(scattered(tree, axis), lax.axis_size(axis))


def updated_rows(
    rows: Any, params: Any, opt_shard: Any, optimizer: optax.GradientTransformation, axis: str
) -> tuple[Any, Any]:
    """This device's rows of the parameters after a step by its rows of the gradients; the state."""
    own = own_rows(params, axis)
    updates, state = optimizer.update(rows, opt_shard, own)
    return optax.apply_updates(own, updates), state


def new_params(
    rows: Any, params: Any, opt_shard: Any, optimizer: optax.GradientTransformation, axis: str
) -> tuple[Any, Any]:
    """The whole parameters after a step by each device's rows of the gradients; the state."""
    new, state = updated_rows(rows, params, opt_shard, optimizer, axis)
    return gathered(new, axis), state
