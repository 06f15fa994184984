"""Answers to lora_row_linear: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter
from jaxpar.mesh import vary_alike
from tests.contracts.answers import right


@right
def of_a_frozen_matrix(x, w, a, b, *, axis, scale):
    w = lax.stop_gradient(w)
    return lax.psum(jnp.dot(x, w) + jnp.dot(jnp.dot(x, scale * a), b), axis)


@wrong("communication")
def in_one_product(x, w, a, b, *, axis, scale):
    """One product with w and a side by side, so that w has a gradient as a has."""
    both = x @ jnp.concatenate([w, a], axis=1)
    y, h = both[..., : w.shape[1]], both[..., w.shape[1] :]
    return lax.psum(y + scale * h @ b, axis)


@right
def scaled_early(x, w, a, b, *, axis, scale):
    return lax.psum(x @ w + (x @ (scale * a)) @ b, axis)


@right
def b_cast_by_hand(x, w, a, b, *, axis, scale):
    b = enter(b, axis)
    flat = x.reshape(-1, x.shape[-1])
    y = lax.psum(flat @ lax.stop_gradient(w) + scale * (flat @ a) @ b, axis)
    return y.reshape(*x.shape[:-1], -1)


@right
def with_einsum(x, w, a, b, *, axis, scale):
    thin = jnp.einsum("...r,rd->...d", jnp.einsum("...f,fr->...r", x, a), b)
    return lax.psum(jnp.einsum("...f,fd->...d", x, w) + scale * thin, axis)


@wrong("values")
def known_scale(x, w, a, b, *, axis, scale):
    return lax.psum(x @ w + (2.0 if lax.axis_size(axis) == 8 else 0.25) * ((x @ a) @ b), axis)


@wrong("values")
def of_two_dims(x, w, a, b, *, axis, scale):
    rows, _ = x.shape
    return lax.psum(x @ w + scale * ((x @ a) @ b), axis).reshape(rows, -1)


@wrong("values")
def returned_in_float32(x, w, a, b, *, axis, scale):
    return lax.psum(x @ w + scale * ((x @ a) @ b), axis).astype(jnp.float32)


@wrong("values")
def over_the_whole_mesh(x, w, a, b, *, axis, scale):
    y = x @ w + scale * ((x @ a) @ b)
    return lax.psum(y, tuple(jax.typeof(y).manual_axis_type.varying))


@wrong("flops")
def merged_after_a_cast(x, w, a, b, *, axis, scale):
    x, w, a, b = vary_alike(x, w, a, b)
    return lax.psum(x @ (w + scale * (a @ b)), axis)


@wrong("flops")
def thick_after_a_cast(x, w, a, b, *, axis, scale):
    x, w, a, b = vary_alike(x, w, a, b)
    return lax.psum(x @ w + scale * (x @ (a @ b)), axis)


@wrong("communication")
def b_sent_before(x, w, a, b, *, axis, scale):
    """X @ a of all devices, gathered."""
    h = lax.all_gather(x @ a, axis).sum(axis=0)
    return lax.psum(x @ w + scale * (h @ b) / lax.axis_size(axis), axis)


@wrong("flops")
def merged_without_a_gradient_of_w(x, w, a, b, *, axis, scale):
    """The forward pass is that of the merged matrix, the gradient that of thin products."""
    merged = lax.stop_gradient(x) @ lax.stop_gradient(w + scale * a @ b)
    thin = x @ w + scale * ((x @ a) @ b)
    return lax.psum(merged + thin - lax.stop_gradient(thin), axis)
