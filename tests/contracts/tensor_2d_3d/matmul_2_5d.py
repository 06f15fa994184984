"""Answers to matmul_2_5d: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter, gathered, own_shard, scattered
from jaxpar.contracts.tensor_2d_3d.summa_matmul import by_gathers, side, zeros_of_product
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


@right
def deep_multiplied_in_float32(x, w, *, rows, cols, depth):
    side(rows, cols)
    x, w = gathered(x, cols, 1), gathered(enter(w, depth), rows)
    return jnp.matmul(x, w, preferred_element_type=jnp.float32).astype(x.dtype)


@right
def deep_transposed(x, w, *, rows, cols, depth):
    return by_gathers(enter(w, depth).T, x.T, rows=cols, cols=rows).T


@wrong("values")
def deep_in_float32(x, w, *, rows, cols, depth):
    x, w = x.astype(jnp.float32), enter(w, depth).astype(jnp.float32)
    return by_gathers(x, w, rows=rows, cols=cols)


@wrong("communication")
def deep_sent_in_float32(x, w, *, rows, cols, depth):
    return deep_in_float32(x, w, rows=rows, cols=cols, depth=depth).astype(x.dtype)


@wrong("gradient")
def deep_of_at_most_three_squares(x, w, *, rows, cols, depth):
    """The gradient of w is that of the first three squares."""
    w = enter(w, depth)
    w = jnp.where(lax.axis_index(depth) < 3, w, lax.stop_gradient(w))
    return by_gathers(x, w, rows=rows, cols=cols)


@wrong("values")
def deep_of_one_device_in_a_square_refused(x, w, *, rows, cols, depth):
    if side(rows, cols) == 1:
        raise ValueError("nothing to split")
    return by_gathers(x, enter(w, depth), rows=rows, cols=cols)


@wrong("values")
def deep_in_parts_that_q_divides(x, w, *, rows, cols, depth):
    q, w = side(rows, cols), enter(w, depth)
    x_parts = x.reshape(len(x), q, -1).swapaxes(0, 1)
    y = zeros_of_product(x, w)
    for x_part, w_part in zip(x_parts, w.reshape(q, -1, w.shape[1]), strict=True):
        y += gathered(x_part, cols, 1) @ gathered(w_part, rows)
    return y


@wrong("flops")
def deep_of_all_columns(x, w, *, rows, cols, depth):
    """The columns of as many blocks as there are devices along `cols`, of which one is kept."""
    wide = jnp.tile(gathered(enter(w, depth), rows), (1, side(rows, cols)))
    return (gathered(x, cols, 1) @ wide)[:, : w.shape[1]]
