"""Answers to matmul_2_5d: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right
from tests.contracts.tensor_2d_3d.common import (
    brought,
    gathered,
    ring,
    square,
    summa_by_gathers,
    zeros,
)


@right
def deep_by_adding_zero(x, w, *, rows, cols, depth):
    square(rows, cols)
    return gathered(x, cols, 1) @ gathered(w + 0 * lax.axis_index(depth), rows, 0)


@wrong("communication")
def deep_with_w_shared(x, w, *, rows, cols, depth):
    """FSDP over depth: the forward gather is more than needed, for w is there already."""
    size = w.shape[1] // lax.axis_size(depth)
    own = lax.pcast(w, depth, to="varying")
    own = lax.dynamic_slice_in_dim(own, lax.axis_index(depth) * size, size, 1)
    square(rows, cols)
    return gathered(x, cols, 1) @ gathered(gathered(own, depth, 1), rows, 0)


@right
def deep_by_gathers(x, w, *, rows, cols, depth):
    return summa_by_gathers(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def summa_in_rounds(x, w, *, rows, cols):
    def one_round(y, k):
        return y + brought(x, k, cols) @ brought(w, k, rows), None

    return lax.scan(one_round, zeros(x, w), jnp.arange(square(rows, cols)))[0]


@right
def deep_in_rounds(x, w, *, rows, cols, depth):
    return summa_in_rounds(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


def summa_by_rings(x, w, *, rows, cols):
    square(rows, cols)
    return ring(x, cols, 1) @ ring(w, rows, 0)


@right
def deep_by_rings(x, w, *, rows, cols, depth):
    return summa_by_rings(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


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


@right
def deep_by_cannon(x, w, *, rows, cols, depth):
    return summa_by_cannon(x, lax.pcast(w, depth, to="varying"), rows=rows, cols=cols)


@right
def deep_with_own_derivative(x, w, *, rows, cols, depth):
    square(rows, cols)

    @jax.custom_vjp
    def gather(w):
        return lax.pcast(gathered(w, rows, 0), depth, to="varying")

    def backward(_, c):
        return (lax.psum(lax.psum_scatter(c, rows, tiled=True), depth),)

    gather.defvjp(lambda w: (gather(w), None), backward)
    return gathered(x, cols, 1) @ gather(w)


@wrong("values")
def deep_by_names_of_first_case(x, w, *, rows, cols, depth):
    return deep_by_gathers(x, w, rows="tpx", cols="tpy", depth="tpz")


@wrong("communication")
def deep_rounds_cast_implicit(x, w, *, rows, cols, depth):
    return summa_in_rounds(x, w, rows=rows, cols=cols)


@wrong("communication")
def deep_cast_after_gather(x, w, *, rows, cols, depth):
    square(rows, cols)
    columns = lax.pcast(gathered(w, rows, 0), depth, to="varying")
    return gathered(x, cols, 1) @ columns


@wrong("communication")
def deep_of_gathered_gradients(x, w, *, rows, cols, depth):
    @jax.custom_vjp
    def cast(w):
        return lax.pcast(w, depth, to="varying")

    def backward(_, c):
        total = lax.all_gather(c, depth, to="invarying").sum(axis=0)
        return (total,)

    cast.defvjp(lambda w: (cast(w), None), backward)
    return summa_by_gathers(x, cast(w), rows=rows, cols=cols)
