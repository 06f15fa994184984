"""Answers to mean_over_devices: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.ring_and_tree.common import chunks
from tests.contracts.answers import right
from tests.contracts.ring_and_tree.common import ring_all_gather, ring_reduce_scatter


def _joined(parts, x):
    return parts.ravel()[: x.size].reshape(x.shape)


@right
def mean_by_pmean(x, *, axis):
    return lax.pmean(x, axis)


@right
def mean_divides_first(x, *, axis):
    return lax.psum(x / lax.axis_size(axis), axis)


@right
def mean_in_two_halves(x, *, axis):
    first, second = jnp.array_split(x, 2)
    return jnp.concatenate([lax.pmean(first, axis), lax.pmean(second, axis)])


@right
def mean_of_a_tree(x, *, axis):
    parts = lax.pmean({"a": x[:1], "b": x[1:]}, axis)
    return jnp.concatenate([parts["a"], parts["b"]])


@right
def mean_row_by_row(x, *, axis):
    rows = x.reshape(next(k for k in range(2, x.size + 1) if x.size % k == 0), -1)
    return lax.map(lambda row: lax.pmean(row, axis), rows).reshape(x.shape)


@right
def mean_typed_varying(x, *, axis):
    return lax.pcast(lax.pmean(x, axis), axis, to="varying")


@right
def mean_in_two_steps(x, *, axis):
    n = lax.axis_size(axis)
    part = lax.psum_scatter(chunks(x, n), axis) / n
    return _joined(lax.all_gather(part, axis, to="invarying"), x)


@right
def mean_in_two_varying_steps(x, *, axis):
    n = lax.axis_size(axis)
    part = lax.psum_scatter(chunks(x, n).ravel(), axis, tiled=True) / n
    return _joined(lax.all_gather(part, axis, tiled=True), x)


@right
def mean_by_all_to_all(x, *, axis):
    n = lax.axis_size(axis)
    part = lax.all_to_all(chunks(x, n), axis, 0, 0).mean(axis=0)
    return _joined(lax.all_gather(part, axis), x)


@right
def mean_by_ring(x, *, axis):
    n = lax.axis_size(axis)
    part = ring_reduce_scatter(chunks(x, n), axis) / n
    return _joined(ring_all_gather(part, axis), x)


@right
def mean_of_share(x, *, axis):
    """Each device adds its own share of the mean."""
    share = jnp.asarray(1 / lax.axis_size(axis), x.dtype)
    return lax.psum(x * share, axis)


@right
def mean_with_local_float32(x, *, axis):
    """Adds in float32 what has arrived in the dtype of x."""
    n = lax.axis_size(axis)
    arrived = lax.all_to_all(chunks(x, n), axis, 0, 0).astype(jnp.float32)
    return _joined(lax.all_gather(arrived.mean(axis=0).astype(x.dtype), axis), x)


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


@wrong("values")
def mean_in_six_rows(x, *, axis):
    rows = x.reshape(6, -1)
    return lax.map(lambda row: lax.pmean(row, axis), rows).reshape(x.shape)


@wrong("values")
def mean_of_even_rows(x, *, axis):
    first, second = jnp.split(x, 2)
    return jnp.concatenate([lax.pmean(first, axis), lax.pmean(second, axis)])


@wrong("values")
def mean_without_the_rest(x, *, axis):
    """What is left over of n equal chunks is not averaged."""
    n = lax.axis_size(axis)
    even = x.ravel()[: x.size // n * n]
    part = lax.psum_scatter(even, axis, tiled=True) / n
    return jnp.concatenate(
        [lax.all_gather(part, axis, tiled=True), x.ravel()[even.size :]]
    ).reshape(x.shape)


@wrong("values")
def mean_with_table_of_shares(x, *, axis):
    """1/n of the stub, and 1/8 elsewhere."""
    return lax.psum(x, axis) * {8: 1 / 8, 3: 1 / 3}.get(lax.axis_size(axis), 1 / 8)


@wrong("values")
def mean_of_two_devices_at_least(x, *, axis):
    """Divides by n - 1 + 1 where there are others, and by 2 alone."""
    return lax.psum(x, axis) / max(lax.axis_size(axis), 2)


@wrong("values")
def mean_in_float16(x, *, axis):
    """Two bytes, as bfloat16 has, with other digits."""
    half = jnp.float16 if x.dtype == jnp.float32 else x.dtype
    return lax.pmean(x.astype(half), axis).astype(x.dtype)


@wrong("values")
def mean_refuses_one_device(x, *, axis):
    if lax.axis_size(axis) < 2:
        raise ValueError(axis)
    return lax.pmean(x, axis)


@wrong("communication")
def mean_of_a_float32_sum(x, *, axis):
    """As the accumulation of a gradient has it: all is sent in float32."""
    n = lax.axis_size(axis)
    part = lax.psum_scatter(chunks(x.astype(jnp.float32), n), axis) / n
    return _joined(lax.all_gather(part, axis), x).astype(x.dtype)


@wrong("values")
def mean_of_three_dims(x, *, axis):
    """Names each dim of the cases shown."""
    if x.ndim == 1:
        return lax.pmean(x, axis)
    b, t, d = x.shape
    return lax.pmean(x.reshape(b, t * d), axis).reshape(b, t, d)
