"""Answers to int8_all_gather: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from jaxpar.quantize import dequantize_blocks, quantize_blocks
from tests.contracts.answers import right


def _with_straight_gradient(whole, axis, w_shard):
    @jax.custom_vjp
    def gather(w):
        return whole(w).astype(w.dtype)

    def backward(_, gradient):
        return (lax.psum_scatter(gradient, axis, scatter_dimension=0, tiled=True),)

    gather.defvjp(lambda w: (gather(w), None), backward)
    return gather(w_shard)


def _encoded(w, block, scale_dtype=jnp.float32):
    """Codes and scales by hand."""
    if block < 1 or w.shape[1] % block:
        raise ValueError(f"{w.shape[1]} columns, {block=}")
    blocks = w.astype(jnp.float32).reshape(len(w), -1, block)
    scales = (jnp.abs(blocks).max(axis=-1) / 127).astype(scale_dtype)
    steps = scales.astype(jnp.float32)[..., None]
    codes = jnp.round(blocks / jnp.where(steps == 0, 1, steps))
    return jnp.clip(codes, -127, 127).astype(jnp.int8), scales


@right
def by_hand(w_shard, *, axis, block):
    def whole(w):
        codes, scales = (lax.all_gather(x, axis, tiled=True) for x in _encoded(w, block))
        return (codes.astype(jnp.float32) * scales[..., None]).reshape(-1, w.shape[1])

    return _with_straight_gradient(whole, axis, w_shard)


@right
def scales_in_bfloat16(w_shard, *, axis, block):
    def whole(w):
        sent = _encoded(w, block, jnp.bfloat16)
        codes, scales = (lax.all_gather(x, axis, tiled=True) for x in sent)
        return (codes * scales.astype(jnp.float32)[..., None]).reshape(-1, w.shape[1])

    return _with_straight_gradient(whole, axis, w_shard)


@right
def in_one_message(w_shard, *, axis, block):
    def whole(w):
        codes, scales = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        tail = lax.bitcast_convert_type(scales, jnp.int8).reshape(len(w), -1)
        arrived = lax.all_gather(jnp.concatenate([codes, tail], axis=1), axis, tiled=True)
        codes, tail = jnp.split(arrived, [w.shape[1]], axis=1)
        tail = tail.reshape(len(tail), -1, 4)
        return dequantize_blocks(codes, lax.bitcast_convert_type(tail, jnp.float32))

    return _with_straight_gradient(whole, axis, w_shard)


@right
def by_flat_blocks(w_shard, *, axis, block):
    def whole(w):
        if w.shape[1] % block:
            raise ValueError(f"{w.shape[1]} columns, {block=}")
        flat = w.astype(jnp.float32).reshape(-1)
        sent = quantize_blocks(flat, block=block, bits=8)
        return dequantize_blocks(*lax.all_gather(sent, axis)).reshape(-1, w.shape[1])

    return _with_straight_gradient(whole, axis, w_shard)


@right
def tangents_gathered_with_their_transpose(w_shard, *, axis, block):
    """A rule for tangents, which JAX turns round: what is gathered is the tangent alone."""

    @jax.custom_jvp
    def gather(w):
        sent = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        return dequantize_blocks(*lax.all_gather(sent, axis, tiled=True)).astype(w.dtype)

    @gather.defjvp
    def _(primals, tangents):
        (w,), (tangent,) = primals, tangents
        return gather(w), lax.all_gather(tangent, axis, tiled=True)

    return gather(w_shard)


@wrong("values")
def rounded_down(w_shard, *, axis, block):
    def whole(w):
        blocks = w.astype(jnp.float32).reshape(len(w), -1, block)
        scales = jnp.abs(blocks).max(axis=-1) / 127
        codes = jnp.floor(blocks / jnp.where(scales == 0, 1, scales)[..., None]).astype(jnp.int8)
        codes, scales = (lax.all_gather(x, axis, tiled=True) for x in (codes, scales))
        return (codes * scales[..., None]).reshape(-1, w.shape[1])

    return _with_straight_gradient(whole, axis, w_shard)


@wrong("values")
def blocks_down_the_columns(w_shard, *, axis, block):
    def whole(w):
        codes, scales = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        whole_columns = jnp.abs(w).max(axis=0).astype(jnp.float32) / 127
        steps = jnp.where(whole_columns == 0, 1, whole_columns)[None]
        codes = jnp.round(w.astype(jnp.float32) / steps).astype(jnp.int8)
        columns = lax.all_gather(whole_columns[None], axis, tiled=True)
        codes = lax.all_gather(codes, axis, tiled=True)
        return codes * jnp.repeat(columns, len(w), axis=0) + 0 * scales[0, 0]

    return _with_straight_gradient(whole, axis, w_shard)


@wrong("values")
def devices_in_another_order(w_shard, *, axis, block):
    def whole(w):
        sent = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        y = dequantize_blocks(*lax.all_gather(sent, axis, tiled=True))
        return jnp.roll(y, len(w), axis=0)

    return _with_straight_gradient(whole, axis, w_shard)


@wrong("gradient")
def gradient_of_the_first_device(w_shard, *, axis, block):
    def whole(w):
        sent = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        return dequantize_blocks(*lax.all_gather(sent, axis, tiled=True))

    @jax.custom_vjp
    def gather(w):
        return whole(w).astype(w.dtype)

    def backward(_, gradient):
        only = jnp.where(lax.axis_index(axis) == 0, gradient, 0)
        return (lax.psum_scatter(only, axis, tiled=True),)

    gather.defvjp(lambda w: (gather(w), None), backward)
    return gather(w_shard) + 0 * lax.axis_index(axis).astype(w_shard.dtype)


@wrong("communication")
def in_bfloat16(w_shard, *, axis, block):
    def whole(w):
        low = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        codes, scales = low[0].astype(jnp.bfloat16), low[1]
        codes, scales = (lax.all_gather(x, axis, tiled=True) for x in (codes, scales))
        return dequantize_blocks(codes.astype(jnp.int8), scales)

    return _with_straight_gradient(whole, axis, w_shard)


@wrong("communication")
def round_the_ring_with_one_step_too_many(w_shard, *, axis, block):
    def whole(w):
        n = lax.axis_size(axis)
        sent = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        parts = [sent]
        for _ in range(n - 1):
            parts.append([hop(x, axis) for x in parts[-1]])
        order = (lax.axis_index(axis) - jnp.arange(n)) % n
        stacked = [jnp.stack(x)[jnp.argsort(order)] for x in zip(*parts, strict=True)]
        extra = hop(parts[-1][0], axis).astype(jnp.float32).sum() * 0
        return dequantize_blocks(*stacked).reshape(-1, w.shape[1]) + extra

    return _with_straight_gradient(whole, axis, w_shard)


@wrong("communication")
def gradient_in_float32(w_shard, *, axis, block):
    """It costs twice the bytes where w is bfloat16."""

    def whole(w):
        sent = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        return dequantize_blocks(*lax.all_gather(sent, axis, tiled=True))

    return _with_straight_gradient(whole, axis, w_shard.astype(jnp.float32)).astype(w_shard.dtype)


@wrong("gradient")
def gradient_in_bfloat16(w_shard, *, axis, block):
    def whole(w):
        sent = quantize_blocks(w.astype(jnp.float32), block=block, bits=8)
        return dequantize_blocks(*lax.all_gather(sent, axis, tiled=True))

    @jax.custom_vjp
    def gather(w):
        return whole(w).astype(w.dtype)

    def backward(_, gradient):
        low = lax.psum_scatter(gradient.astype(jnp.bfloat16), axis, tiled=True)
        return (low.astype(gradient.dtype),)

    gather.defvjp(lambda w: (gather(w), None), backward)
    return gather(w_shard)
