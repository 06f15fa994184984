"""What the exercises of the lesson on vocabulary and sequence parallelism have in common."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Expected
from jaxpar.contracts.case import Case


def other_sizes(case: Case) -> list[int]:
    """The sizes of the mesh, 1 for the axis that splits the vocabulary."""
    return [1 if name == case.kwargs["axis"] else n for name, n in case.sizes.items()]


def of_batch(case: Case, x: Array) -> list[Expected]:
    """Dim 0 split over all axes but the one that splits the vocabulary."""
    sizes = tuple(case.sizes.values())
    blocks = x.reshape(*other_sizes(case), -1, *x.shape[1:])
    return [Expected(jnp.broadcast_to(blocks, (*sizes, *blocks.shape[len(sizes) :])))]


def own_tokens(ids: Array, count: int, axis: str) -> tuple[Array, Array]:
    """The place of each id among this device's `count` tokens, and whether it is one of them."""
    place = ids - lax.axis_index(axis) * count
    return place, (place >= 0) & (place < count)


def rows_or_zeros(table: Array, rows: Array, mine: Array) -> Array:
    """These rows of the table, zeros where they are not this device's."""
    return jnp.where(mine[..., None], table[jnp.where(mine, rows, 0)], 0)


def own_rows(ids: Array, table: Array, axis: str) -> Array:
    """The row of each id that this device has, zeros for the others."""
    return rows_or_zeros(table, *own_tokens(ids, len(table), axis))


def own_label_logit(logits: Array, labels: Array, axis: str) -> Array:
    """The label's logit where this device has it, 0 elsewhere."""
    place, mine = own_tokens(labels, logits.shape[-1], axis)
    return jnp.where(mine, take(logits, jnp.where(mine, place, 0)), 0)


def take(logits: Array, places: Array) -> Array:
    """The logit of each token at its place."""
    return jnp.take_along_axis(logits, places[..., None], axis=-1)[..., 0]
