"""Resharding: an array that is split along one dim is split along another one."""

from jax import Array, lax
from jaxtyping import Shaped


def reshard_rows_to_columns(
    x: Shaped[Array, "d_shard f"], *, axis: str
) -> Shaped[Array, "d f_shard"]:
    """Takes this device's rows of an array to its columns: from "d_axis f" to "d f_axis".

    Device i of the n on the axis holds the i-th of n equal parts of the rows, and returns the i-th
    of n equal parts of the columns, with all rows in their order.

    Math: y = X[:, i*f/n : (i+1)*f/n] on device i, where X is the array of all devices
    Comm:
        forward: all_to_all(axis) x
        backward: all_to_all(axis) x
    Memory: x
    Source: Zhuang et al. 2023 (On Optimizing the Communication of Model Parallelism), section 2

    Raises:
        ValueError: n does not divide the columns.
    """
    n = lax.axis_size(axis)
    if x.shape[1] % n:
        raise ValueError(
            f"reshard_rows_to_columns: dim f (size {x.shape[1]}) must be divisible by mesh axis "
            f"{axis} (size {n}); pad f to {-(-x.shape[1] // n) * n}"
        )
    return lax.all_to_all(x, axis, split_axis=1, concat_axis=0, tiled=True)
