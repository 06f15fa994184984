"""Wrong answers to products in three dims that people write."""

from __future__ import annotations

from collections.abc import Callable

from jax import Array, lax

from jaxpar.contracts.base import Mistake
from jaxpar.contracts.tensor_nd_mistakes import (
    Gather,
    all_reduced_backward,
    gathered,
    gathered_by_sum,
    interleaved,
    own_gradient,
    own_part,
)

Matmul = Callable[..., Array]


def _product(
    gather: Gather = gathered,
    *,
    x_over: tuple[str, ...] = ("y",),
    w_over: str = "x",
    sum_over: str = "z",
    dim: int = 0,
) -> Matmul:
    """Gathers both, multiplies, and scatters the sum over an axis along this dim."""

    def function(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
        axes = {"x": x_axis, "y": y_axis, "z": z_axis}
        for over in x_over:
            x = gather(x, axes[over], 0)
        y = x @ gather(w, axes[w_over], 1)
        return lax.psum_scatter(y, axes[sum_over], scatter_dimension=dim, tiled=True)

    return function


def _own_products(x: Array, w: Array, x_axis: str, y_axis: str) -> Array:
    return gathered(x, y_axis, 0) @ gathered(w, x_axis, 1)


def _not_summed(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    return own_part(_own_products(x, w, x_axis, y_axis), z_axis, 0)


def _all_rows(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    return lax.psum(_own_products(x, w, x_axis, y_axis), z_axis)


def _all_reduced(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    return own_part(lax.psum(_own_products(x, w, x_axis, y_axis), z_axis), z_axis, 0)


def _inner_gathered(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    x, w = gathered(x, z_axis, 1), gathered(w, z_axis, 0)
    return own_part(_own_products(x, w, x_axis, y_axis), z_axis, 0)


def _whole(x: Array, w: Array, x_axis: str, y_axis: str, z_axis: str) -> Array:
    for axis in (y_axis, x_axis):
        x = gathered(x, axis, 0)
    for axis in (x_axis, y_axis):
        w = gathered(w, axis, 1)
    return gathered(x, z_axis, 1) @ gathered(w, z_axis, 0)


def _whole_result(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    return _whole(x, w, x_axis, y_axis, z_axis)


def _all_gathered(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    y = _whole(x, w, x_axis, y_axis, z_axis)
    return own_part(own_part(own_part(y, x_axis, 0), z_axis, 0), y_axis, 1)


def _gathered_twice(x: Array, w: Array, *, x_axis: str, y_axis: str, z_axis: str) -> Array:
    x = own_part(gathered(gathered(x, y_axis, 0), x_axis, 0), x_axis, 0)
    return lax.psum_scatter(x @ gathered(w, x_axis, 1), z_axis, tiled=True)


MATMUL_3D = (
    Mistake("x_over_x", _product(x_over=("x",)), "values"),
    Mistake("w_over_y", _product(w_over="y"), "values"),
    Mistake("x_and_w_over_wrong_axes", _product(x_over=("x",), w_over="y"), "values"),
    Mistake("rows_of_blocks_interleaved", _product(interleaved), "values"),
    Mistake("products_not_summed", _not_summed, "values"),
    Mistake("summed_over_y", _product(sum_over="y"), "values"),
    Mistake("columns_scattered", _product(dim=1), "values"),
    Mistake("all_rows_of_block", _all_rows, "values"),
    Mistake("x_over_x_and_y", _product(x_over=("y", "x")), "values"),
    Mistake("gradient_of_own_block", _product(own_gradient), "gradient"),
    Mistake("product_whole", _whole_result, "sharding"),
    Mistake("product_all_reduced", _all_reduced, "communication"),
    Mistake("inner_dim_gathered", _inner_gathered, "communication"),
    Mistake("matrices_gathered", _all_gathered, "communication"),
    Mistake("rows_of_x_gathered", _gathered_twice, "communication"),
    Mistake("block_gradients_all_reduced", _product(all_reduced_backward), "communication"),
    Mistake("blocks_gathered_by_sum", _product(gathered_by_sum), "communication"),
)
