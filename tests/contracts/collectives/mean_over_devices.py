"""Answers to mean_over_devices: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right
from tests.contracts.ring_and_tree.common import ring_all_gather, ring_reduce_scatter


@right
def mean_by_pmean(x, *, axis):
    return lax.pmean(x, axis)


@right
def mean_divides_first(x, *, axis):
    return lax.psum(x / lax.axis_size(axis), axis)


@right
def mean_in_two_halves(x, *, axis):
    first, second = jnp.split(x, 2)
    return jnp.concatenate([lax.pmean(first, axis), lax.pmean(second, axis)])


@right
def mean_of_a_tree(x, *, axis):
    parts = lax.pmean({"a": x[:1], "b": x[1:]}, axis)
    return jnp.concatenate([parts["a"], parts["b"]])


@right
def mean_row_by_row(x, *, axis):
    rows = x.reshape(6, -1)
    return lax.map(lambda row: lax.pmean(row, axis), rows).reshape(x.shape)


@right
def mean_typed_varying(x, *, axis):
    return lax.pcast(lax.pmean(x, axis), axis, to="varying")


@right
def mean_in_two_steps(x, *, axis):
    n = lax.axis_size(axis)
    part = lax.psum_scatter(x.reshape(n, -1), axis) / n
    return lax.all_gather(part, axis, to="invarying").reshape(x.shape)


@right
def mean_in_two_varying_steps(x, *, axis):
    part = lax.psum_scatter(x.ravel(), axis, tiled=True) / lax.axis_size(axis)
    return lax.all_gather(part, axis, tiled=True).reshape(x.shape)


@right
def mean_by_all_to_all(x, *, axis):
    n = lax.axis_size(axis)
    part = lax.all_to_all(x.reshape(n, -1), axis, 0, 0).mean(axis=0)
    return lax.all_gather(part, axis).reshape(x.shape)


@right
def mean_by_ring(x, *, axis):
    n = lax.axis_size(axis)
    part = ring_reduce_scatter(x.reshape(n, -1), axis) / n
    return ring_all_gather(part, axis).reshape(x.shape)


@wrong("communication")
def mean_twice(x, *, axis):
    return lax.pmean(lax.pcast(lax.pmean(x, axis), axis, to="varying"), axis)


@wrong("values")
def mean_of_dp(x, *, axis):
    return lax.pmean(x, "dp")


@wrong("values")
def mean_in_half_precision(x, *, axis):
    return lax.pmean(x.astype(jnp.bfloat16), axis).astype(x.dtype)


@jax.custom_vjp
def _passes_all_back(x):
    return x


_passes_all_back.defvjp(lambda x: (x, None), lambda _, g: (jnp.ones_like(g),))


@wrong("gradient")
def mean_with_false_gradient(x, *, axis):
    return lax.pmean(_passes_all_back(x), axis)
