"""Answers to matmul_2_5d: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter, gathered, own_shard, scattered
from jaxpar.contracts.tensor_2d_3d.summa_matmul import by_gathers, side
from tests.contracts.answers import right
from tests.contracts.tensor_2d_3d.common import by_rings, in_rounds


@right
def deep_by_adding_zero(x, w, *, rows, cols, depth):
    side(rows, cols)
    return gathered(x, cols, 1) @ gathered(w + 0 * lax.axis_index(depth), rows, 0)


@wrong("communication")
def deep_with_w_split_over_depth(x, w, *, rows, cols, depth):
    """FSDP over depth: the forward gather is more than needed, for w is there already."""
    own = own_shard(enter(w, depth), depth, 1)
    side(rows, cols)
    return gathered(x, cols, 1) @ gathered(gathered(own, depth, 1), rows, 0)


@right
def deep_by_gathers(x, w, *, rows, cols, depth):
    return by_gathers(x, enter(w, depth), rows=rows, cols=cols)


@right
def deep_in_rounds(x, w, *, rows, cols, depth):
    return in_rounds(x, enter(w, depth), rows=rows, cols=cols)


@right
def deep_by_rings(x, w, *, rows, cols, depth):
    return by_rings(x, enter(w, depth), rows=rows, cols=cols)


@right
def deep_with_own_derivative(x, w, *, rows, cols, depth):
    side(rows, cols)

    @jax.custom_vjp
    def gather(w):
        return enter(gathered(w, rows), depth)

    def backward(_, c):
        return (lax.psum(scattered(c, rows), depth),)

    gather.defvjp(lambda w: (gather(w), None), backward)
    return gathered(x, cols, 1) @ gather(w)


@wrong("communication")
def deep_rounds_cast_implicit(x, w, *, rows, cols, depth):
    return in_rounds(x, w, rows=rows, cols=cols)


@wrong("communication")
def deep_cast_after_gather(x, w, *, rows, cols, depth):
    side(rows, cols)
    columns = enter(gathered(w, rows), depth)
    return gathered(x, cols, 1) @ columns


@wrong("communication")
def deep_of_gathered_gradients(x, w, *, rows, cols, depth):
    @jax.custom_vjp
    def cast(w):
        return enter(w, depth)

    def backward(_, c):
        return (lax.all_gather(c, depth, to="invarying").sum(axis=0),)

    cast.defvjp(lambda w: (cast(w), None), backward)
    return by_gathers(x, cast(w), rows=rows, cols=cols)
