"""What the exercises of the lesson on tensor parallel have in common."""

from __future__ import annotations

import jax
from jax import Array, lax

from jaxpar.contracts.base import Limit
from jaxpar.contracts.blocks import share

ONE_ALL_REDUCE = ((Limit(("all_reduce",), "axis", share(2)),),)


def enter(x: Array, axis: str) -> Array:
    """Megatron's f: identity forward, all-reduce backward."""
    return lax.pcast(x, axis, to="varying")


def as_it_is(x: Array, axis: str) -> Array:
    """No collective at all."""
    return x


def twice(x: Array, axis: str) -> Array:
    """The sum over the axis, summed once more."""
    return lax.psum(enter(lax.psum(x, axis), axis), axis)


def whole_columns(w: Array, axis: str) -> Array:
    """A matrix that is split by columns, gathered whole."""
    return lax.all_gather(w, axis, axis=1, tiled=True)


def whole_rows(w: Array, axis: str) -> Array:
    """A matrix that is split by rows, gathered whole."""
    return lax.all_gather(w, axis, tiled=True)


def sum_again(x: Array, axis: str) -> Array:
    """Megatron's f as a function of its own: the backward pass sums what JAX has summed already."""

    @jax.custom_vjp
    def f(x: Array) -> Array:
        return x

    f.defvjp(lambda x: (x, None), lambda _, g: (lax.psum(enter(g, axis), axis),))
    return f(x)
