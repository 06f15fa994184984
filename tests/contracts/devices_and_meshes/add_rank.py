"""Answers to add_rank: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def rank_by_promotion(x, *, axis):
    return x + lax.axis_index(axis)


@right
def rank_from_table(x, *, axis):
    return x + jnp.arange(lax.axis_size(axis), dtype=x.dtype)[lax.axis_index(axis)]


@wrong("values")
def rank_of_tp(x, *, axis):
    return x + lax.axis_index("tp")


@jax.custom_vjp
def _double_backward(x):
    return x


_double_backward.defvjp(lambda x: (x, None), lambda _, g: (2 * g,))


@wrong("gradient")
def rank_with_false_gradient(x, *, axis):
    return _double_backward(x) + lax.axis_index(axis)


@wrong("communication")
def rank_by_chain(x, *, axis):
    n = lax.axis_size(axis)
    rank = jnp.zeros_like(x)
    for _ in range(n - 1):  # one more each time it moves on
        rank = lax.ppermute(rank + 1, axis, [(j, j + 1) for j in range(n - 1)])
    return x + rank


@wrong("communication")
def rank_by_gather(x, *, axis):
    ranks = lax.all_gather(lax.axis_index(axis), axis)
    return x + ranks[lax.axis_index(axis)].astype(x.dtype)
