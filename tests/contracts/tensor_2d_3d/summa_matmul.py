"""Answers to summa_matmul: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import gathered, hop, scattered
from jaxpar.contracts.tensor_2d_3d.summa_matmul import (
    brought,
    by_gathers,
    rounds_of_cannon,
    side,
    zeros_of_product,
)
from jaxpar.parallel.tensor_nd import cannon_matmul
from tests.contracts.answers import right
from tests.contracts.tensor_2d_3d.common import by_rings, in_rounds


@right
def summa_with_x_travelling(x, w, *, rows, cols):
    q, j, size = side(rows, cols), lax.axis_index(cols), x.shape[1]
    column = gathered(w, rows)
    y = x @ lax.dynamic_slice_in_dim(column, j * size, size)
    for k in range(1, q):
        x = hop(x, cols)
        y += x @ lax.dynamic_slice_in_dim(column, (j - k) % q * size, size)
    return y


@wrong("values")
def summa_by_cannon_in_order_of_names(x, w, *, rows, cols):
    """Right where `rows` comes before `cols` in the mesh; since 0.12 JAX refuses the others."""
    q = side(rows, cols)
    places = [(i, j, (i + j) % q) for i in range(q) for j in range(q)]
    x = lax.ppermute(x, (rows, cols), [(i * q + inner, i * q + j) for i, j, inner in places])
    w = lax.ppermute(w, (rows, cols), [(inner * q + j, i * q + j) for i, j, inner in places])
    return rounds_of_cannon(x, w, rows=rows, cols=cols)


@right
def summa_by_gathers(x, w, *, rows, cols):
    return by_gathers(x, w, rows=rows, cols=cols)


@right
def summa_untiled(x, w, *, rows, cols):
    side(rows, cols)
    return jnp.einsum("lmk,lkn->mn", lax.all_gather(x, cols), lax.all_gather(w, rows))


@right
def summa_in_rounds(x, w, *, rows, cols):
    return in_rounds(x, w, rows=rows, cols=cols)


@right
def summa_in_rounds_brought_again(x, w, *, rows, cols):
    @jax.checkpoint
    def one_round(k, y):
        return y + brought(x, k, cols) @ brought(w, k, rows)

    return lax.fori_loop(0, side(rows, cols), one_round, zeros_of_product(x, w))


@right
def summa_with_next_round_on_its_way(x, w, *, rows, cols):
    q = side(rows, cols)

    def blocks(k):
        return brought(x, k, cols), brought(w, k, rows)

    def one_round(carry, k):
        y, (x_k, w_k) = carry
        return (y + x_k @ w_k, blocks(k)), None

    (y, (x_k, w_k)), _ = lax.scan(one_round, (zeros_of_product(x, w), blocks(0)), jnp.arange(1, q))
    return y + x_k @ w_k


@right
def summa_with_one_gather(x, w, *, rows, cols):
    q, size = side(rows, cols), x.shape[1]
    columns = gathered(x, cols, 1)

    def one_round(y, k):
        here = lax.dynamic_slice_in_dim(columns, k * size, size, 1)
        return y + here @ brought(w, k, rows), None

    return lax.scan(one_round, zeros_of_product(x, w), jnp.arange(q))[0]


@right
def summa_by_rings(x, w, *, rows, cols):
    return by_rings(x, w, rows=rows, cols=cols)


@right
def summa_by_cannon(x, w, *, rows, cols):
    q = side(rows, cols)
    i, j = lax.axis_index(rows), lax.axis_index(cols)
    for k in range(q - 1):  # row i of x moves i times, column j of w j times
        x = jnp.where(k < i, hop(x, cols, -1), x)
        w = jnp.where(k < j, hop(w, rows, -1), w)
    return rounds_of_cannon(x, w, rows=rows, cols=cols)


@right
def summa_by_the_cannon_of_the_library(x, w, *, rows, cols):
    return cannon_matmul(x, w, rows=rows, cols=cols)


@right
def summa_with_own_derivative(x, w, *, rows, cols):
    side(rows, cols)

    @jax.custom_vjp
    def product(x, w):
        return gathered(x, cols, 1) @ gathered(w, rows)

    def backward(kept, c):
        x, w = kept
        of_x = scattered(c @ gathered(w, rows).T, cols, 1)
        return of_x, scattered(gathered(x, cols, 1).T @ c, rows)

    product.defvjp(lambda x, w: (product(x, w), (x, w)), backward)
    return product(x, w)


@wrong("values")
def summa_in_two_rounds(x, w, *, rows, cols):
    return in_rounds(x, w, rows=rows, cols=cols, rounds=2)


@wrong("values")
def summa_in_bfloat16(x, w, *, rows, cols):
    small = summa_by_gathers(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), rows=rows, cols=cols)
    return small.astype(x.dtype)


@wrong("gradient")
def summa_of_fixed_w(x, w, *, rows, cols):
    return summa_by_gathers(x, lax.stop_gradient(w), rows=rows, cols=cols)


@wrong("gradient")
def summa_in_a_loop_of_unknown_length(x, w, *, rows, cols):
    q = side(rows, cols)

    def one_round(carry):
        k, y = carry
        return k + 1, y + brought(x, k, cols) @ brought(w, k, rows)

    return lax.while_loop(lambda carry: carry[0] < q, one_round, (0, zeros_of_product(x, w)))[1]


@wrong("communication")
def summa_brought_over_the_mesh(x, w, *, rows, cols):
    def one_round(y, k):
        i = lax.axis_index(rows)
        rows_of_x = jnp.stack([jnp.where(i == r, x, 0) for r in range(lax.axis_size(rows))])
        column = lax.psum(jnp.where(lax.axis_index(cols) == k, rows_of_x, 0), (rows, cols))
        return y + column[i] @ brought(w, k, rows), None

    return lax.scan(one_round, zeros_of_product(x, w), jnp.arange(side(rows, cols)))[0]


@wrong("communication")
def summa_gathered_three_times(x, w, *, rows, cols):
    def half(x, w):
        return summa_by_gathers(x / 2, w, rows=rows, cols=cols)

    return half(x, w) + jax.checkpoint(half)(x, w)
