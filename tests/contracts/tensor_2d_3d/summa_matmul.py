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


@right
def summa_summed_in_float32(x, w, *, rows, cols):
    side(rows, cols)
    x, w = gathered(x, cols, 1), gathered(w, rows)
    return jnp.matmul(x, w, preferred_element_type=jnp.float32).astype(x.dtype)


@right
def summa_transposed(x, w, *, rows, cols):
    return by_gathers(w.T, x.T, rows=cols, cols=rows).T


@wrong("values")
def summa_with_sum_of_another_dtype(x, w, *, rows, cols):
    y = jnp.zeros((len(x), w.shape[1]))
    for block, row in zip(lax.all_gather(x, cols), lax.all_gather(w, rows), strict=True):
        y += block @ row
    side(rows, cols)
    return y


@wrong("values")
def summa_in_parts_that_q_divides(x, w, *, rows, cols):
    q = side(rows, cols)
    x_parts = x.reshape(len(x), q, -1).swapaxes(0, 1)
    w_parts = w.reshape(q, -1, w.shape[1])

    def one_round(y, parts):
        return y + gathered(parts[0], cols, 1) @ gathered(parts[1], rows), None

    return lax.scan(one_round, zeros_of_product(x, w), (x_parts, w_parts))[0]


@wrong("values")
def summa_with_remainder_dropped(x, w, *, rows, cols):
    q = side(rows, cols)
    inner = x.shape[1] // q * q
    return summa_in_parts_that_q_divides(x[:, :inner], w[:inner], rows=rows, cols=cols)


@wrong("values")
def summa_with_axes_by_heart(x, w, *, rows, cols):
    order = {"tpx": ("tpx", "tpy"), "tpz": ("tpz", "tpy")}
    side(rows, cols)
    rows, cols = order.get(rows, ("tpx", "tpy"))
    return gathered(x, cols, 1) @ gathered(w, rows)


@wrong("values")
def summa_of_one_device_refused(x, w, *, rows, cols):
    if side(rows, cols) == 1:
        raise ValueError("nothing to split")
    return gathered(x, cols, 1) @ gathered(w, rows)


@wrong("values")
def summa_multiplied_in_float32(x, w, *, rows, cols):
    side(rows, cols)
    x, w = gathered(x, cols, 1), gathered(w, rows)
    return x.astype(jnp.float32) @ w.astype(jnp.float32)


@wrong("communication")
def summa_sent_in_float32(x, w, *, rows, cols):
    wide = by_gathers(x.astype(jnp.float32), w.astype(jnp.float32), rows=rows, cols=cols)
    return wide.astype(x.dtype)


@wrong("memory")
def summa_by_cannon_with_blocks_kept(x, w, *, rows, cols):
    q, i, j = side(rows, cols), lax.axis_index(rows), lax.axis_index(cols)
    for k in range(q - 1):
        x = jnp.where(k < i, hop(x, cols, -1), x)
        w = jnp.where(k < j, hop(w, rows, -1), w)
    kept_x, kept_w = [x], [w]
    for _ in range(q - 1):
        kept_x.append(hop(kept_x[-1], cols, -1))
        kept_w.append(hop(kept_w[-1], rows, -1))
    return jnp.einsum("qmk,qkn->mn", jnp.stack(kept_x), jnp.stack(kept_w))


@wrong("flops")
def summa_of_all_columns(x, w, *, rows, cols):
    """The columns of as many blocks as there are devices along `cols`, of which one is kept."""
    q = side(rows, cols)
    wide = jnp.tile(gathered(w, rows), (1, q))
    return (gathered(x, cols, 1) @ wide)[:, : w.shape[1]]
