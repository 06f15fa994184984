"""Answers to products in blocks, on a square: right by other ways, wrong by clever ways."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.mesh import varying_axes
from jaxpar.parallel.tensor_nd import cannon_matmul


def square(rows, cols):
    if lax.axis_size(rows) != lax.axis_size(cols):
        raise ValueError("rows and cols differ")
    return lax.axis_size(rows)


def _zeros(x, w):
    axes = tuple(varying_axes(x) | varying_axes(w))
    return lax.pcast(jnp.zeros((len(x), w.shape[1]), x.dtype), axes, to="varying")


def gathered(x, axis, dim):
    return lax.all_gather(x, axis, axis=dim, tiled=True)


def _brought(x, root, axis):
    return lax.psum(jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x)), axis)


def ring(x, axis, dim):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    blocks = [x]
    for _ in range(n - 1):
        blocks.append(lax.ppermute(blocks[-1], axis, [(j, (j + 1) % n) for j in range(n)]))
    in_order = jnp.stack(blocks)[(i - jnp.arange(n)) % n]
    return jnp.concatenate(list(in_order), axis=dim)


def summa_by_gathers(x, w, *, rows, cols):
    square(rows, cols)
    return gathered(x, cols, 1) @ gathered(w, rows, 0)


def summa_untiled(x, w, *, rows, cols):
    square(rows, cols)
    return jnp.einsum("lmk,lkn->mn", lax.all_gather(x, cols), lax.all_gather(w, rows))


def summa_in_rounds(x, w, *, rows, cols):
    def one_round(y, k):
        return y + _brought(x, k, cols) @ _brought(w, k, rows), None

    return lax.scan(one_round, _zeros(x, w), jnp.arange(square(rows, cols)))[0]


def summa_in_rounds_brought_again(x, w, *, rows, cols):
    @jax.checkpoint
    def one_round(k, y):
        return y + _brought(x, k, cols) @ _brought(w, k, rows)

    return lax.fori_loop(0, square(rows, cols), one_round, _zeros(x, w))


def summa_with_next_round_on_its_way(x, w, *, rows, cols):
    q = square(rows, cols)

    def blocks(k):
        return _brought(x, k, cols), _brought(w, k, rows)

    def one_round(carry, k):
        y, (x_k, w_k) = carry
        return (y + x_k @ w_k, blocks(k)), None

    (y, (x_k, w_k)), _ = lax.scan(one_round, (_zeros(x, w), blocks(0)), jnp.arange(1, q))
    return y + x_k @ w_k


def summa_by_rings(x, w, *, rows, cols):
    square(rows, cols)
    return ring(x, cols, 1) @ ring(w, rows, 0)


def summa_with_one_gather(x, w, *, rows, cols):
    q, size = square(rows, cols), x.shape[1]
    columns = gathered(x, cols, 1)

    def one_round(y, k):
        here = lax.dynamic_slice_in_dim(columns, k * size, size, 1)
        return y + here @ _brought(w, k, rows), None

    return lax.scan(one_round, _zeros(x, w), jnp.arange(q))[0]


def summa_by_cannon(x, w, *, rows, cols):
    q = square(rows, cols)
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
    square(rows, cols)

    @jax.custom_vjp
    def product(x, w):
        return gathered(x, cols, 1) @ gathered(w, rows, 0)

    def backward(kept, c):
        x, w = kept
        of_x = lax.psum_scatter(c @ gathered(w, rows, 0).T, cols, scatter_dimension=1, tiled=True)
        return of_x, lax.psum_scatter(gathered(x, cols, 1).T @ c, rows, tiled=True)

    product.defvjp(lambda x, w: (product(x, w), (x, w)), backward)
    return product(x, w)


def summa_in_two_rounds(x, w, *, rows, cols):
    square(rows, cols)

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

    return lax.scan(one_round, _zeros(x, w), jnp.arange(square(rows, cols)))[0]


def summa_in_a_loop_of_unknown_length(x, w, *, rows, cols):
    q = square(rows, cols)

    def one_round(carry):
        k, y = carry
        return k + 1, y + _brought(x, k, cols) @ _brought(w, k, rows)

    return lax.while_loop(lambda carry: carry[0] < q, one_round, (0, _zeros(x, w)))[1]


def summa_gathered_three_times(x, w, *, rows, cols):
    def half(x, w):
        return summa_by_gathers(x / 2, w, rows=rows, cols=cols)

    return half(x, w) + jax.checkpoint(half)(x, w)


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
        cannon_matmul,
        summa_with_own_derivative,
    ),
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
    },
}
