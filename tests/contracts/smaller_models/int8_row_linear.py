"""Answers to int8_row_linear: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.mesh import vary, varying_axes
from tests.contracts.answers import right


def _check(codes, width):
    if width < 1 or codes.shape[1] % width:
        raise ValueError(f"{codes.shape[1]} columns, {width=}")


def _scaled(y, scales):
    return y * scales.astype(y.dtype)[None]


@right
def filled_slice_by_slice(x, codes, scales, *, axis, width):
    _check(codes, width)

    def step(i, y):
        part = lax.dynamic_slice_in_dim(codes, i * width, width, axis=1).astype(x.dtype)
        return lax.dynamic_update_slice_in_dim(y, x @ part, i * width, axis=1)

    y = vary(jnp.zeros((len(x), codes.shape[1]), x.dtype), varying_axes(x))
    return _scaled(lax.psum(lax.fori_loop(0, codes.shape[1] // width, step, y), axis), scales)


@right
def slices_scaled_before_the_sum(x, codes, scales, *, axis, width):
    _check(codes, width)

    def one(start):
        part = lax.dynamic_slice_in_dim(codes, start, width, axis=1).astype(x.dtype)
        return (x @ part) * lax.dynamic_slice_in_dim(scales, start, width).astype(x.dtype)[None]

    slices = lax.map(one, jnp.arange(0, codes.shape[1], width))
    return lax.psum(jnp.concatenate([*slices], axis=1), axis)


@right
def summed_in_two_halves(x, codes, scales, *, axis, width):
    _check(codes, width)
    n = lax.axis_size(axis)

    def one(start):
        return x @ lax.dynamic_slice_in_dim(codes, start, width, axis=1).astype(x.dtype)

    slices = lax.map(one, jnp.arange(0, codes.shape[1], width))
    y = jnp.swapaxes(slices, 0, 1).reshape(-1)
    y = jnp.pad(y, (0, -y.size % n))
    y = lax.all_gather(lax.psum_scatter(y, axis, tiled=True), axis, tiled=True)
    return _scaled(y[: len(x) * codes.shape[1]].reshape(len(x), -1), scales)


@right
def converted_with_scales(x, codes, scales, *, axis, width):
    _check(codes, width)

    def one(start):
        part = lax.dynamic_slice_in_dim(codes, start, width, axis=1).astype(x.dtype)
        return x @ (part * lax.dynamic_slice_in_dim(scales, start, width).astype(x.dtype)[None])

    slices = lax.map(one, jnp.arange(0, codes.shape[1], width))
    return lax.psum(jnp.swapaxes(slices, 0, 1).reshape(len(x), -1), axis)


@wrong("memory")
def matrix_scaled_whole(x, codes, scales, *, axis, width):
    _check(codes, width)
    w = codes.astype(jnp.float32) * scales[None]
    return lax.psum(x @ w.astype(x.dtype), axis)


@wrong("memory")
def eight_times_as_wide(x, codes, scales, *, axis, width):
    _check(codes, width)
    size = codes.shape[1] if codes.shape[1] % (8 * width) else 8 * width

    def one(start):
        return x @ lax.dynamic_slice_in_dim(codes, start, size, axis=1).astype(x.dtype)

    slices = lax.map(one, jnp.arange(0, codes.shape[1], size))
    y = jnp.swapaxes(slices, 0, 1).reshape(len(x), -1)
    return _scaled(lax.psum(y, axis), scales)


@wrong("memory")
def mixed_product(x, codes, scales, *, axis, width):
    """A product of floats and int8, which the compiler makes floats of, whole."""
    _check(codes, width)
    y = lax.dot_general(x, codes, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)
    return _scaled(lax.psum(y, axis), scales)


@wrong("values")
def transposed(x, codes, scales, *, axis, width):
    _check(codes, width)
    square = min(codes.shape)
    y = jnp.zeros((len(x), codes.shape[1]), x.dtype)
    part = x[:, :square] @ codes[:square, :square].T.astype(x.dtype)
    return _scaled(lax.psum(vary(y, varying_axes(x)).at[:, :square].set(part), axis), scales)


@wrong("communication")
def sent_twice(x, codes, scales, *, axis, width):
    _check(codes, width)

    def one(start):
        return x @ lax.dynamic_slice_in_dim(codes, start, width, axis=1).astype(x.dtype)

    slices = lax.map(one, jnp.arange(0, codes.shape[1], width))
    y = jnp.swapaxes(slices, 0, 1).reshape(len(x), -1)
    half = jnp.where(jnp.arange(len(x))[:, None] % 2 == 0, y, 0)
    return _scaled(lax.psum(half, axis) + lax.psum(y - half, axis), scales)


@wrong("errors")
def refused_by_an_assertion(x, codes, scales, *, axis, width):
    assert width > 0 and codes.shape[1] % width == 0

    def one(start):
        return x @ lax.dynamic_slice_in_dim(codes, start, width, axis=1).astype(x.dtype)

    slices = lax.map(one, jnp.arange(0, codes.shape[1], width))
    return _scaled(lax.psum(jnp.swapaxes(slices, 0, 1).reshape(len(x), -1), axis), scales)


@wrong("values")
def x_in_bfloat16(x, codes, scales, *, axis, width):
    """What the columns of a large result hide, small ones show."""
    _check(codes, width)

    def one(start):
        part = lax.dynamic_slice_in_dim(codes, start, width, axis=1).astype(jnp.bfloat16)
        return jnp.matmul(x.astype(jnp.bfloat16), part, preferred_element_type=jnp.float32)

    slices = lax.map(one, jnp.arange(0, codes.shape[1], width))
    y = jnp.swapaxes(slices, 0, 1).reshape(len(x), -1).astype(x.dtype)
    return _scaled(lax.psum(y, axis), scales)
