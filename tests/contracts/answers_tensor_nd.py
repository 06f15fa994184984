"""Answers to products in blocks: right by other ways, wrong by clever ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.mesh import varying_axes


def _square(rows, cols):
    if lax.axis_size(rows) != lax.axis_size(cols):
        raise ValueError("rows and cols differ")
    return lax.axis_size(rows)


def _zeros(x, w):
    axes = tuple(varying_axes(x) | varying_axes(w))
    return lax.pcast(jnp.zeros((len(x), w.shape[1]), x.dtype), axes, to="varying")


def _gathered(x, axis, dim):
    return lax.all_gather(x, axis, axis=dim, tiled=True)


def _brought(x, root, axis):
    return lax.psum(jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x)), axis)


def _ring(x, axis, dim):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = [x]
    for _ in range(n - 1):
        blocks.append(lax.ppermute(blocks[-1], axis, [(j, (j + 1) % n) for j in range(n)]))
    in_order = jnp.stack(blocks)[(i - jnp.arange(n)) % n]
    return jnp.concatenate(list(in_order), axis=dim)


def summa_by_gathers(x, w, *, rows, cols):
    _square(rows, cols)
    return _gathered(x, cols, 1) @ _gathered(w, rows, 0)


def summa_untiled(x, w, *, rows, cols):
    _square(rows, cols)
    return jnp.einsum("lmk,lkn->mn", lax.all_gather(x, cols), lax.all_gather(w, rows))


def summa_in_rounds(x, w, *, rows, cols):
    def one_round(y, k):
        return y + _brought(x, k, cols) @ _brought(w, k, rows), None

    return lax.scan(one_round, _zeros(x, w), jnp.arange(_square(rows, cols)))[0]


def summa_in_rounds_brought_again(x, w, *, rows, cols):
    @jax.checkpoint
    def one_round(k, y):
        return y + _brought(x, k, cols) @ _brought(w, k, rows)

    return lax.fori_loop(0, _square(rows, cols), one_round, _zeros(x, w))


def summa_with_next_round_on_its_way(x, w, *, rows, cols):
    q = _square(rows, cols)

    def blocks(k):
        return _brought(x, k, cols), _brought(w, k, rows)

    def one_round(carry, k):
        y, (x_k, w_k) = carry
        return (y + x_k @ w_k, blocks(k)), None

    (y, (x_k, w_k)), _ = lax.scan(one_round, (_zeros(x, w), blocks(0)), jnp.arange(1, q))
    return y + x_k @ w_k


def summa_by_rings(x, w, *, rows, cols):
    _square(rows, cols)
    return _ring(x, cols, 1) @ _ring(w, rows, 0)


def summa_with_one_gather(x, w, *, rows, cols):
    q, size = _square(rows, cols), x.shape[1]
    columns = _gathered(x, cols, 1)

    def one_round(y, k):
        here = lax.dynamic_slice_in_dim(columns, k * size, size, 1)
        return y + here @ _brought(w, k, rows), None

    return lax.scan(one_round, _zeros(x, w), jnp.arange(q))[0]


def summa_by_cannon(x, w, *, rows, cols):
    q = _square(rows, cols)
    i, j = lax.axis_index(rows), lax.axis_index(cols)
    to_previous = [((k + 1) % q, k) for k in range(q)]
    for k in range(q - 1):  # row i of x moves i times, column j of w j times
        x = jnp.where(k < i, lax.ppermute(x, cols, to_previous), x)
        w = jnp.where(k < j, lax.ppermute(w, rows, to_previous), w)
    y = x @ w
    for _ in range(q - 1):
        x, w = lax.ppermute(x, cols, to_previous), lax.ppermute(w, rows, to_previous)
        y += x @ w
    return y


def summa_with_own_derivative(x, w, *, rows, cols):
    _square(rows, cols)

    @jax.custom_vjp
    def product(x, w):
        return _gathered(x, cols, 1) @ _gathered(w, rows, 0)

    def backward(kept, c):
        x, w = kept
        of_x = lax.psum_scatter(c @ _gathered(w, rows, 0).T, cols, scatter_dimension=1, tiled=True)
        return of_x, lax.psum_scatter(_gathered(x, cols, 1).T @ c, rows, tiled=True)

    product.defvjp(lambda x, w: (product(x, w), (x, w)), backward)
    return product(x, w)


def summa_in_two_rounds(x, w, *, rows, cols):
    _square(rows, cols)

    def one_round(y, k):
        return y + _brought(x, k, cols) @ _brought(w, k, rows), None

    return lax.scan(one_round, _zeros(x, w), jnp.arange(2))[0]


def summa_by_names_of_first_case(x, w, *, rows, cols):
    return summa_by_gathers(x, w, rows="tpx", cols="tpy")


def summa_in_bfloat16(x, w, *, rows, cols):
    small = summa_by_gathers(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), rows=rows, cols=cols)
    return small.astype(x.dtype)


def summa_of_fixed_w(x, w, *, rows, cols):
    return summa_by_gathers(x, lax.stop_gradient(w), rows=rows, cols=cols)


def summa_brought_over_the_mesh(x, w, *, rows, cols):
    def one_round(y, k):
        i = lax.axis_index(rows)
        rows_of_x = jnp.stack([jnp.where(i == r, x, 0) for r in range(lax.axis_size(rows))])
        column = lax.psum(jnp.where(lax.axis_index(cols) == k, rows_of_x, 0), (rows, cols))
        return y + column[i] @ _brought(w, k, rows), None

    return lax.scan(one_round, _zeros(x, w), jnp.arange(_square(rows, cols)))[0]


def summa_in_a_loop_of_unknown_length(x, w, *, rows, cols):
    q = _square(rows, cols)

    def one_round(carry):
        k, y = carry
        return k + 1, y + _brought(x, k, cols) @ _brought(w, k, rows)

    return lax.while_loop(lambda carry: carry[0] < q, one_round, (0, _zeros(x, w)))[1]


def summa_gathered_three_times(x, w, *, rows, cols):
    def half(x, w):
        return summa_by_gathers(x / 2, w, rows=rows, cols=cols)

    return half(x, w) + jax.checkpoint(half)(x, w)


def summa_holding_padding(x, w, *, rows, cols):
    y = summa_in_rounds(x, w, rows=rows, cols=cols)
    k = jnp.arange(32 * len(x)) % 7 - 3
    noise = jnp.sin(jnp.outer(k, jnp.sin(y[0])))
    return y + 0 * noise.sum()


def deep_by_gathers(x, w, *, rows, cols, depth):
    return summa_by_gathers(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def deep_in_rounds(x, w, *, rows, cols, depth):
    return summa_in_rounds(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def deep_by_rings(x, w, *, rows, cols, depth):
    return summa_by_rings(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def deep_by_cannon(x, w, *, rows, cols, depth):
    return summa_by_cannon(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def deep_with_own_derivative(x, w, *, rows, cols, depth):
    _square(rows, cols)

    @jax.custom_vjp
    def gather(w):
        return lax.pcast(_gathered(w, rows, 0), depth, to="varying")

    def backward(_, c):
        return (lax.psum(lax.psum_scatter(c, rows, tiled=True), depth),)

    gather.defvjp(lambda w: (gather(w), None), backward)
    return _gathered(x, cols, 1) @ gather(w)


def deep_rounds_cast_implicit(x, w, *, rows, cols, depth):
    return summa_in_rounds(x, w, rows=rows, cols=cols)


def deep_by_names_of_first_case(x, w, *, rows, cols, depth):
    return deep_by_gathers(x, w, rows="tpx", cols="tpy", depth="tpz")


def deep_cast_after_gather(x, w, *, rows, cols, depth):
    _square(rows, cols)
    columns = lax.pcast(_gathered(w, rows, 0), depth, to="varying")
    return _gathered(x, cols, 1) @ columns


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
    products = _ring(x, y_axis, 0) @ _ring(w, x_axis, 1)
    n, i = lax.axis_size(z_axis), lax.axis_index(z_axis)
    chunks = products.reshape(n, -1, products.shape[1])
    total = chunks[(i - 1) % n]
    for k in range(2, n + 1):
        total = lax.ppermute(total, z_axis, [(j, (j + 1) % n) for j in range(n)])
        total += chunks[(i - k) % n]
    return total


def cube_by_exchange(x, w, *, x_axis, y_axis, z_axis):
    products = _gathered(x, y_axis, 0) @ _gathered(w, x_axis, 1)
    parts = products.reshape(lax.axis_size(z_axis), -1, products.shape[1])
    return lax.all_to_all(parts, z_axis, 0, 0).sum(axis=0)


def cube_transposed(x, w, *, x_axis, y_axis, z_axis):
    columns = lax.all_gather(w.T, x_axis, tiled=True)
    products = jnp.einsum("mk,nk->nm", _gathered(x, y_axis, 0), columns)
    return lax.psum_scatter(products, z_axis, scatter_dimension=1, tiled=True).T


def cube_by_names_of_first_case(x, w, *, x_axis, y_axis, z_axis):
    return cube_untiled(x, w, x_axis="tpx", y_axis="tpy", z_axis="tpz")


def cube_of_two(x, w, *, x_axis, y_axis, z_axis):
    products = _gathered(x, y_axis, 0) @ _gathered(w, x_axis, 1)
    half = lax.dynamic_slice_in_dim(
        lax.psum(products, z_axis), lax.axis_index(z_axis) * (len(products) // 2), len(x), 0
    )
    return half


def cube_in_bfloat16(x, w, *, x_axis, y_axis, z_axis):
    x_i = _gathered(x.astype(jnp.bfloat16), y_axis, 0)
    w_j = _gathered(w.astype(jnp.bfloat16), x_axis, 1)
    products = (x_i @ w_j).astype(x.dtype)
    return lax.psum_scatter(products, z_axis, tiled=True)


def cube_gathered_again(x, w, *, x_axis, y_axis, z_axis):
    @jax.checkpoint
    def product(x, w):
        return _gathered(x, y_axis, 0) @ _gathered(w, x_axis, 1)

    return lax.psum_scatter(product(x, w), z_axis, tiled=True)


def cube_of_gathered_products(x, w, *, x_axis, y_axis, z_axis):
    products = _gathered(x, y_axis, 0) @ _gathered(w, x_axis, 1)
    total = lax.all_gather(products, z_axis).sum(axis=0)
    return lax.dynamic_slice_in_dim(
        total, lax.axis_index(z_axis) * (len(total) // lax.axis_size(z_axis)),
        len(total) // lax.axis_size(z_axis),
    )  # fmt: skip


def cube_of_fixed_x(x, w, *, x_axis, y_axis, z_axis):
    return cube_untiled(lax.stop_gradient(x), w, x_axis=x_axis, y_axis=y_axis, z_axis=z_axis)


RIGHT = {
    "summa_matmul": (
        summa_by_gathers,
        summa_untiled,
        summa_in_rounds,
        summa_in_rounds_brought_again,
        summa_with_next_round_on_its_way,
        summa_with_one_gather,
        summa_by_rings,
        summa_by_cannon,
        summa_with_own_derivative,
    ),
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
    "summa_matmul": {
        summa_in_two_rounds: "values",
        summa_by_names_of_first_case: "values",
        summa_in_bfloat16: "values",
        summa_of_fixed_w: "gradient",
        summa_in_a_loop_of_unknown_length: "gradient",
        summa_brought_over_the_mesh: "communication",
        summa_gathered_three_times: "communication",
        summa_holding_padding: "memory",
    },
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
