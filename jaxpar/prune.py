"""Weights set to 0, on one device: the smallest of a matrix, or two of every four neighbours."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float


def prune_smallest(w: Float[Array, "..."], *, fraction: float) -> Float[Array, "..."]:
    """Sets this fraction of all numbers to 0: those of the smallest magnitudes.

    How many these are is rounded. Of equal magnitudes, those that come first are set to 0.

    Memory: w
    Source: Han et al. 2015 (Learning both Weights and Connections), section 3

    Raises:
        ValueError: the fraction is below 0 or above 1.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"prune_smallest: fraction is {fraction}; use one from 0 to 1")
    flat = w.reshape(-1)
    smallest = jnp.argsort(jnp.abs(flat), stable=True)[: round(fraction * w.size)]
    return flat.at[smallest].set(0).reshape(w.shape)


def prune_2_4(w: Float[Array, "d f"]) -> Float[Array, "d f"]:
    """Keeps two numbers of every four neighbours in a column, those of the largest magnitudes.

    The others are set to 0. Dim d is the one that a product sums over, in x @ w, and rows 0 to 3
    are the first four neighbours, rows 4 to 7 the next. Of equal magnitudes, those that come first
    are kept. The result has the shape and the dtype of w.

    Math: y_ik = w_ik if fewer than 2 of the numbers in rows 4*(i//4) to 4*(i//4)+3 of column k are
        larger in magnitude, or as large and before it; else 0
    Comm:
        forward: nothing
        backward: nothing
    Memory: w
    Source: Mishra et al. 2021 (Accelerating Sparse Deep Neural Networks), section 3

    Raises:
        ValueError: 4 does not divide the rows.
    """
    rows, columns = w.shape
    if rows % 4:
        raise ValueError(
            f"prune_2_4: w has {rows} rows; two of every four are kept; pad w to a multiple of 4"
        )
    fours = w.reshape(-1, 4, columns)
    order = jnp.argsort(-jnp.abs(fours), axis=1, stable=True)  # the place of the largest first
    ranks = jnp.argsort(order, axis=1)
    return jnp.where(ranks < 2, fours, 0).reshape(w.shape)
