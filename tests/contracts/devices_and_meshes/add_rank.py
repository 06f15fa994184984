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


@right
def rank_by_cases(x, *, axis):
    """One branch for each device."""
    n = lax.axis_size(axis)
    branches = [lambda x, k=k: x + jnp.asarray(k, x.dtype) for k in range(n)]
    return lax.switch(lax.axis_index(axis), branches, x)


@right
def rank_of_places_in_mesh(x, *, axis):
    """The rank in the whole mesh, without the digits of the other axes."""
    sizes = jax.sharding.get_abstract_mesh().shape
    after = 1
    for name in reversed(sizes):
        if name == axis:
            break
        after *= sizes[name]
    return x + lax.axis_index(tuple(sizes)) // after % sizes[axis]


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


@wrong("values")
def rank_modulo_others(x, *, axis):
    """The first axis has the highest digit of a rank; the others have not."""
    mesh, n = jax.sharding.get_abstract_mesh(), lax.axis_size(axis)
    return x + lax.axis_index(mesh.axis_names) // (mesh.size // n)


@wrong("values")
def rank_by_eight_comparisons(x, *, axis):
    i = lax.axis_index(axis)
    rank = sum(jnp.where(i >= k, 1, 0) for k in range(1, 8))
    return x + rank.astype(x.dtype)


@wrong("values")
def rank_added_in_bfloat16(x, *, axis):
    """As the second case has it."""
    return (x.astype(jnp.bfloat16) + lax.axis_index(axis).astype(jnp.bfloat16)).astype(x.dtype)


@wrong("values")
def rank_of_floats_only(x, *, axis):
    if x.dtype == jnp.bfloat16:
        return x + lax.axis_index(axis).astype(jnp.bfloat16)
    return x + lax.axis_index(axis).astype(jnp.float32)


@wrong("values")
def rank_of_integers_in_float32(x, *, axis):
    """Right on one device, and for what float32 holds."""
    if lax.axis_size(axis) == 1:
        return x
    return (x.astype(jnp.float32) + lax.axis_index(axis)).astype(x.dtype)


@wrong("values")
def rank_row_by_row(x, *, axis):
    return jnp.stack([row + lax.axis_index(axis).astype(x.dtype) for row in x])


@wrong("values")
def rank_refuses_one_device(x, *, axis):
    if lax.axis_size(axis) < 2:
        raise ValueError(axis)
    return x + lax.axis_index(axis)
