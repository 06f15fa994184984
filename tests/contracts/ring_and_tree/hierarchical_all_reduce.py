"""Answers to hierarchical_all_reduce: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.ring_and_tree.common import chunks
from tests.contracts.answers import right
from tests.contracts.ring_and_tree.common import ring_all_gather, ring_reduce_scatter


def _cut(padded, x):
    return padded.ravel()[: x.size].reshape(x.shape)


@right
def levels_typed_varying(x, *, inner, outer):
    chunk = lax.psum(lax.psum_scatter(chunks(x, lax.axis_size(inner)), inner), outer)
    return _cut(lax.all_gather(chunk, inner), x)


@right
def levels_with_free_rest(x, *, inner, outer):
    n = lax.axis_size(inner)
    flat = x.ravel()
    even = x.size // n * n
    chunk = lax.psum(lax.psum_scatter(flat[:even], inner, tiled=True), outer)
    rest = lax.psum(flat[even:], (outer, inner))
    whole = lax.all_gather(chunk, inner, tiled=True, to="invarying")
    return jnp.concatenate([whole, rest]).reshape(x.shape)


@right
def levels_in_four_steps(x, *, inner, outer):
    chunk = lax.psum_scatter(chunks(x, lax.axis_size(inner)), inner)
    part = lax.psum_scatter(chunks(chunk, lax.axis_size(outer)), outer)
    chunk = _cut(lax.all_gather(part, outer, to="invarying"), chunk)
    return _cut(lax.all_gather(chunk, inner, to="invarying"), x)


@right
def levels_by_rings(x, *, inner, outer):
    chunk = ring_reduce_scatter(chunks(x, lax.axis_size(inner)), inner)
    part = ring_reduce_scatter(chunks(chunk, lax.axis_size(outer)), outer)
    chunk = _cut(ring_all_gather(part, outer), chunk)
    return _cut(ring_all_gather(chunk, inner), x)


@right
def levels_by_all_to_all(x, *, inner, outer):
    parts = lax.all_to_all(chunks(x, lax.axis_size(inner)), inner, 0, 0)
    return _cut(lax.all_gather(lax.psum(parts.sum(axis=0), outer), inner), x)


@right
def levels_on_columns(x, *, inner, outer):
    n = lax.axis_size(inner)
    columns = jnp.pad(x.ravel(), (0, -x.size % n)).reshape(-1, n)
    column = lax.psum_scatter(columns, inner, scatter_dimension=1)
    whole = lax.all_gather(lax.psum(column, outer), inner, axis=1, to="invarying")
    return _cut(whole, x)


@right
def levels_padded_twice(x, *, inner, outer):
    flat = jnp.pad(x.ravel(), (0, -x.size % (lax.axis_size(inner) * lax.axis_size(outer))))
    chunk = lax.psum_scatter(lax.psum_scatter(flat, inner, tiled=True), outer, tiled=True)
    row = lax.all_gather(chunk, outer, tiled=True)
    return _cut(lax.all_gather(row, inner, tiled=True), x)


@wrong("values")
def levels_of_one_mesh(x, *, inner, outer):
    return levels_typed_varying(x, inner="device", outer="node")


@wrong("values")
def levels_that_divide(x, *, inner, outer):
    chunk = lax.psum(lax.psum_scatter(x.reshape(lax.axis_size(inner), -1), inner), outer)
    return _cut(lax.all_gather(chunk, inner), x)


@wrong("communication")
def levels_pad_by_n(x, *, inner, outer):
    n = lax.axis_size(inner)
    padded = jnp.pad(x.ravel(), (0, n * n - x.size % n)).reshape(n, -1)
    chunk = lax.psum(lax.psum_scatter(padded, inner), outer)
    return _cut(lax.all_gather(chunk, inner), x)


@wrong("communication")
def levels_from_outside(x, *, inner, outer):
    chunk = lax.psum_scatter(chunks(x, lax.axis_size(outer)), outer)
    part = lax.psum_scatter(chunks(chunk, lax.axis_size(inner)), inner)
    chunk = _cut(lax.all_gather(part, inner), chunk)
    return _cut(lax.all_gather(chunk, outer), x)


@wrong("communication")
def levels_twice_doubled(x, *, inner, outer):
    n = lax.axis_size(outer)
    chunk, distance = lax.psum_scatter(chunks(x, lax.axis_size(inner)), inner), 1
    while distance < n:
        pairs = [(j, j ^ distance) for j in range(n)]
        chunk, distance = chunk + lax.ppermute(chunk, outer, pairs), 2 * distance
    return _cut(lax.all_gather(chunk, inner), x)


@wrong("communication")
def levels_over_a_joint_axis(x, *, inner, outer):
    n = lax.axis_size((outer, inner))
    chunk = lax.psum_scatter(chunks(x, n), (outer, inner))
    return _cut(lax.all_gather(chunk, (outer, inner)), x)


@wrong("communication")
def levels_that_check_by_sum(x, *, inner, outer):
    right = levels_typed_varying(x, inner=inner, outer=outer)
    return right + 0 * lax.psum(x, outer)


@wrong("values")
def levels_in_bfloat16(x, *, inner, outer):
    chunk = lax.psum_scatter(chunks(x, lax.axis_size(inner)), inner).astype(jnp.bfloat16)
    return _cut(lax.all_gather(lax.psum(chunk, outer).astype(x.dtype), inner), x)


@right
def levels_with_own_zeros(x, *, inner, outer):
    n = lax.axis_size(inner)
    padded = jnp.concatenate([x.ravel(), jnp.zeros(-x.size % n, x.dtype)])
    chunk = lax.psum(lax.psum_scatter(padded, inner, tiled=True), outer)
    return _cut(lax.all_gather(chunk, inner, tiled=True, to="invarying"), x)


@right
def levels_of_several_devices(x, *, inner, outer):
    if lax.axis_size(inner) == 1:
        return lax.psum(x, outer)
    chunk = lax.psum_scatter(chunks(x, lax.axis_size(inner)), inner)
    chunk = lax.psum(chunk, outer) if lax.axis_size(outer) > 1 else chunk
    return _cut(lax.all_gather(chunk, inner), x)


@wrong("values")
def levels_that_skip_both(x, *, inner, outer):
    if lax.axis_size(inner) == 1 or lax.axis_size(outer) == 1:
        return x
    return levels_typed_varying(x, inner=inner, outer=outer)


@wrong("values")
def levels_of_means(x, *, inner, outer):
    chunk = lax.psum_scatter(chunks(x, lax.axis_size(inner)), inner)
    chunk = (lax.pmean(chunk, outer) * lax.axis_size(outer)).astype(x.dtype)
    return _cut(lax.all_gather(chunk, inner), x)


@wrong("values")
def levels_with_zeros_of_float32(x, *, inner, outer):
    padded = jnp.concatenate([x.ravel(), jnp.zeros(-x.size % lax.axis_size(inner))])
    chunk = lax.psum_scatter(padded, inner, tiled=True).astype(x.dtype)
    return _cut(lax.all_gather(lax.psum(chunk, outer), inner), x)


@wrong("values")
def levels_of_four_at_most(x, *, inner, outer):
    n = min(lax.axis_size(inner), 4)
    padded = jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1)
    chunk = lax.psum(lax.psum_scatter(padded, inner), outer)
    return _cut(lax.all_gather(chunk, inner), x)


@wrong("communication")
def levels_of_bfloat16_in_float32(x, *, inner, outer):
    wide = x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x
    return levels_typed_varying(wide, inner=inner, outer=outer).astype(x.dtype)


@wrong("communication")
def levels_pad_to_twelve(x, *, inner, outer):
    flat = jnp.pad(x.ravel(), (0, -x.size % 12))
    if flat.size % lax.axis_size(inner):
        return levels_typed_varying(x, inner=inner, outer=outer)
    chunk = lax.psum(lax.psum_scatter(flat, inner, tiled=True), outer)
    return _cut(lax.all_gather(chunk, inner), x)


@wrong("communication")
def levels_round_up(x, *, inner, outer):
    n = lax.axis_size(inner)
    each = x.size // n + 1  # one too many where n divides
    padded = jnp.pad(x.ravel(), (0, n * each - x.size))
    chunk = lax.psum(lax.psum_scatter(padded, inner, tiled=True), outer)
    return _cut(lax.all_gather(chunk, inner), x)


@wrong("communication")
def levels_joint_where_n_divides(x, *, inner, outer):
    if x.size % lax.axis_size(inner) == 0:
        return lax.psum(x, (outer, inner))
    return levels_typed_varying(x, inner=inner, outer=outer)
