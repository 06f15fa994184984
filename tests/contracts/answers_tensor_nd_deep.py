"""Answers to products on several squares, and on a cube: right ways, and clever wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.contracts.answers_tensor_nd import (
    gathered,
    ring,
    square,
    summa_by_cannon,
    summa_by_gathers,
    summa_by_rings,
    summa_in_rounds,
)


def deep_by_gathers(x, w, *, rows, cols, depth):
    return summa_by_gathers(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def deep_in_rounds(x, w, *, rows, cols, depth):
    return summa_in_rounds(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def deep_by_rings(x, w, *, rows, cols, depth):
    return summa_by_rings(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def deep_by_cannon(x, w, *, rows, cols, depth):
    return summa_by_cannon(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def deep_with_own_derivative(x, w, *, rows, cols, depth):
    square(rows, cols)

    @jax.custom_vjp
    def gather(w):
        return lax.pcast(gathered(w, rows, 0), depth, to="varying")

    def backward(_, c):
        return (lax.psum(lax.psum_scatter(c, rows, tiled=True), depth),)

    gather.defvjp(lambda w: (gather(w), None), backward)
    return gathered(x, cols, 1) @ gather(w)


def deep_rounds_cast_implicit(x, w, *, rows, cols, depth):
    return summa_in_rounds(x, w, rows=rows, cols=cols)


def deep_by_names_of_first_case(x, w, *, rows, cols, depth):
    return deep_by_gathers(x, w, rows="tpx", cols="tpy", depth="tpz")


def deep_cast_after_gather(x, w, *, rows, cols, depth):
    square(rows, cols)
    columns = lax.pcast(gathered(w, rows, 0), depth, to="varying")
    return gathered(x, cols, 1) @ columns


def deep_of_gathered_gradients(x, w, *, rows, cols, depth):
    @jax.custom_vjp
    def cast(w):
        return lax.pcast(w, depth, to="varying")

    def backward(_, c):
        total = lax.all_gather(c, depth, to="invarying").sum(axis=0)
        return (total,)

    cast.defvjp(lambda w: (cast(w), None), backward)
    return summa_by_gathers(x, cast(w), rows=rows, cols=cols)


def cube_untiled(x, w, *, x_axis, y_axis, z_axis):
    rows = lax.all_gather(x, y_axis).reshape(-1, x.shape[1])
    columns = jnp.moveaxis(lax.all_gather(w, x_axis), 0, 1).reshape(len(w), -1)
    parts = (rows @ columns).reshape(lax.axis_size(z_axis), -1, columns.shape[1])
    return lax.psum_scatter(parts, z_axis)


def cube_by_rings(x, w, *, x_axis, y_axis, z_axis):
    products = ring(x, y_axis, 0) @ ring(w, x_axis, 1)
    n, i = lax.axis_size(z_axis), lax.axis_index(z_axis)
    chunks = products.reshape(n, -1, products.shape[1])
    total = chunks[(i - 1) % n]
    for k in range(2, n + 1):
        total = lax.ppermute(total, z_axis, [(j, (j + 1) % n) for j in range(n)])
        total += chunks[(i - k) % n]
    return total


def cube_by_exchange(x, w, *, x_axis, y_axis, z_axis):
    products = gathered(x, y_axis, 0) @ gathered(w, x_axis, 1)
    parts = products.reshape(lax.axis_size(z_axis), -1, products.shape[1])
    return lax.all_to_all(parts, z_axis, 0, 0).sum(axis=0)


def cube_transposed(x, w, *, x_axis, y_axis, z_axis):
    columns = lax.all_gather(w.T, x_axis, tiled=True)
    products = jnp.einsum("mk,nk->nm", gathered(x, y_axis, 0), columns)
    return lax.psum_scatter(products, z_axis, scatter_dimension=1, tiled=True).T


def cube_by_names_of_first_case(x, w, *, x_axis, y_axis, z_axis):
    return cube_untiled(x, w, x_axis="tpx", y_axis="tpy", z_axis="tpz")


def cube_of_two(x, w, *, x_axis, y_axis, z_axis):
    products = gathered(x, y_axis, 0) @ gathered(w, x_axis, 1)
    half = lax.dynamic_slice_in_dim(
        lax.psum(products, z_axis), lax.axis_index(z_axis) * (len(products) // 2), len(x), 0
    )
    return half


def cube_in_bfloat16(x, w, *, x_axis, y_axis, z_axis):
    x_i = gathered(x.astype(jnp.bfloat16), y_axis, 0)
    w_j = gathered(w.astype(jnp.bfloat16), x_axis, 1)
    products = (x_i @ w_j).astype(x.dtype)
    return lax.psum_scatter(products, z_axis, tiled=True)


def cube_gathered_again(x, w, *, x_axis, y_axis, z_axis):
    @jax.checkpoint
    def product(x, w):
        return gathered(x, y_axis, 0) @ gathered(w, x_axis, 1)

    return lax.psum_scatter(product(x, w), z_axis, tiled=True)


def cube_of_gathered_products(x, w, *, x_axis, y_axis, z_axis):
    products = gathered(x, y_axis, 0) @ gathered(w, x_axis, 1)
    total = lax.all_gather(products, z_axis).sum(axis=0)
    return lax.dynamic_slice_in_dim(
        total, lax.axis_index(z_axis) * (len(total) // lax.axis_size(z_axis)),
        len(total) // lax.axis_size(z_axis),
    )  # fmt: skip


def cube_of_fixed_x(x, w, *, x_axis, y_axis, z_axis):
    return cube_untiled(lax.stop_gradient(x), w, x_axis=x_axis, y_axis=y_axis, z_axis=z_axis)


RIGHT = {
    "matmul_2_5d": (
        deep_by_gathers,
        deep_in_rounds,
        deep_by_rings,
        deep_by_cannon,
        deep_with_own_derivative,
    ),
    "matmul_3d": (cube_untiled, cube_by_rings, cube_by_exchange, cube_transposed),
}
WRONG = {
    "matmul_2_5d": {
        deep_by_names_of_first_case: "values",
        deep_rounds_cast_implicit: "communication",
        deep_cast_after_gather: "communication",
        deep_of_gathered_gradients: "communication",
    },
    "matmul_3d": {
        cube_by_names_of_first_case: "values",
        cube_of_two: "values",
        cube_in_bfloat16: "values",
        cube_of_fixed_x: "gradient",
        cube_gathered_again: "communication",
        cube_of_gathered_products: "communication",
    },
}
