"""A change of layout: the same array, split over the same devices in another way."""

from jax import Array, lax
from jaxtyping import Shaped


def swap_layout(
    x: Shaped[Array, "b d"], *, rows: str, columns: str
) -> Shaped[Array, "b_swapped d_swapped"]:
    """Takes each device's block of an array from "b_rows d_columns" to "b_columns d_rows".

    Of the array, [n_rows*b, n_columns*d], the device with index i on `rows` and j on `columns`
    holds block i of n_rows along dim 0, and block j of n_columns along dim 1. It returns block j of
    n_columns along dim 0, and block i of n_rows along dim 1. In the mesh, `rows` comes before
    `columns`.

    Math: y = X[j*B/n_columns :, i*D/n_rows :], of B/n_columns rows and D/n_rows columns
    Comm:
        forward: all_gather(columns) x + all_gather(rows) n_columns*x
        backward: reduce_scatter(rows) n_rows*n_columns*x + reduce_scatter(columns) n_columns*x
    Memory: x
    Source: Zhuang et al. 2023 (On Optimizing the Communication of Model Parallelism), section 2

    Raises:
        ValueError: n_columns does not divide the rows of the array, or n_rows its columns.
    """
    n_rows, n_columns = lax.axis_size(rows), lax.axis_size(columns)
    whole = n_rows * x.shape[0], n_columns * x.shape[1]
    if whole[0] % n_columns or whole[1] % n_rows:
        raise ValueError(
            f"swap_layout: the array is {list(whole)}; dim 0 must be a multiple of {n_columns} "
            f"({columns}), and dim 1 of {n_rows} ({rows}); pad it"
        )
    y = lax.all_gather(x, columns, axis=1, tiled=True)  # [b, D]
    y = lax.all_gather(y, rows, axis=0, tiled=True)  # [B, D], on every device
    blocks = y.reshape(n_columns, whole[0] // n_columns, n_rows, whole[1] // n_rows)
    return blocks[lax.axis_index(columns), :, lax.axis_index(rows)]
