"""Answers to quantized_all_reduce: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import hop
from jaxpar.quantize import dequantize_blocks, quantize_blocks
from tests.contracts.answers import right


def _check(x, axis, block, bits):
    if bits not in (4, 8) or x.size % (block * lax.axis_size(axis)):
        raise ValueError(f"{x.size} numbers, {block=}, {bits=}")


def _scaled(v, block, bits, scale_of):
    """The blocks of v, and the scale of each that `scale_of` makes of its largest magnitude."""
    blocks = v.reshape(*v.shape[:-1], -1, block)
    scales = scale_of(jnp.abs(blocks).max(axis=-1, keepdims=True), 2 ** (bits - 1) - 1)
    return blocks, jnp.where(scales == 0, 1, scales)


def _by(rounded, x, error, second_error, axis, block, bits, *, scale_of=jnp.divide):
    """Both halves with another rounding, or with another form of scales."""
    _check(x, axis, block, bits)
    n = lax.axis_size(axis)

    def encode(v):
        blocks, scales = _scaled(v, block, bits, scale_of)
        most = 2 ** (bits - 1) - 1
        codes = jnp.clip(rounded(blocks / scales), -most, most)
        return codes.astype(f"int{bits}"), scales, codes * scales

    v = (x + error).reshape(n, -1)
    codes, scales, sent = encode(v)
    codes, scales = (lax.all_to_all(one, axis, 0, 0) for one in (codes, scales))
    part = (codes.astype(jnp.float32) * scales).reshape(n, -1).mean(axis=0) + second_error
    own_codes, own_scales, own = encode(part)
    codes, scales = (lax.all_gather(one, axis) for one in (own_codes, own_scales))
    mean = (codes.astype(jnp.float32) * scales).reshape(-1)
    return mean, (v - sent.reshape(v.shape)).reshape(-1), part - own.reshape(-1)


@right
def rounded_to_nearest_by_hand(x, error, second_error, *, axis, block, bits):
    return _by(jnp.round, x, error, second_error, axis, block, bits)


@right
def rounded_at_random(x, error, second_error, *, axis, block, bits):
    def rounded(v):
        key = jax.random.fold_in(jax.random.key(0), lax.axis_index(axis))
        return jnp.floor(v + jax.random.uniform(key, v.shape))

    return _by(rounded, x, error, second_error, axis, block, bits)


@right
def rounded_towards_zero(x, error, second_error, *, axis, block, bits):
    return _by(jnp.trunc, x, error, second_error, axis, block, bits)


@right
def rounded_up(x, error, second_error, *, axis, block, bits):
    return _by(jnp.ceil, x, error, second_error, axis, block, bits)


@right
def scales_that_are_powers_of_two(x, error, second_error, *, axis, block, bits):
    def scale_of(largest, most):
        return jnp.exp2(jnp.ceil(jnp.log2(largest / most)))

    return _by(jnp.round, x, error, second_error, axis, block, bits, scale_of=scale_of)


@right
def scales_in_bfloat16(x, error, second_error, *, axis, block, bits):
    def scale_of(largest, most):
        return (largest / most).astype(jnp.bfloat16).astype(jnp.float32)

    return _by(jnp.round, x, error, second_error, axis, block, bits, scale_of=scale_of)


@right
def exchanged_by_permutes(x, error, second_error, *, axis, block, bits):
    _check(x, axis, block, bits)
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    v = (x + error).reshape(n, -1)
    codes, scales = quantize_blocks(v, block=block, bits=bits)
    part = dequantize_blocks(codes[i], scales[i])
    for away in range(1, n):
        sent = codes[(i + away) % n], scales[(i + away) % n]
        part += dequantize_blocks(*(hop(one, axis, away) for one in sent))
    part = part / n + second_error
    passing = quantize_blocks(part, block=block, bits=bits)
    own = dequantize_blocks(*passing)
    mean = jnp.zeros_like(v).at[i].set(own)
    for away in range(1, n):
        passing = [hop(one, axis) for one in passing]
        mean = mean.at[(i - away) % n].set(dequantize_blocks(*passing))
    return mean.reshape(-1), (v - dequantize_blocks(codes, scales)).reshape(-1), part - own


@right
def codes_and_scales_in_one_message(x, error, second_error, *, axis, block, bits):
    _check(x, axis, block, bits)
    n = lax.axis_size(axis)

    def packed(v):
        codes, scales = quantize_blocks(v, block=block, bits=bits)
        if bits == 4:
            low, high = (codes[..., k::2].astype(jnp.int8) & 15 for k in (0, 1))
            codes = low | (high << 4)
        tail = lax.bitcast_convert_type(scales, jnp.int8).reshape(*v.shape[:-1], -1)
        return jnp.concatenate([codes, tail], axis=-1)

    def unpacked(sent, count):
        size = count * bits // 8
        codes, tail = sent[..., :size], sent[..., size:]
        scales = lax.bitcast_convert_type(tail.reshape(*tail.shape[:-1], -1, 4), jnp.float32)
        if bits == 4:
            nibbles = jnp.stack([codes << 4 >> 4, codes >> 4], axis=-1)
            codes = nibbles.reshape(*codes.shape[:-1], -1)
        return dequantize_blocks(codes, scales)

    v = (x + error).reshape(n, -1)
    sent = packed(v)
    part = unpacked(lax.all_to_all(sent, axis, 0, 0), v.shape[1]).mean(axis=0) + second_error
    own = packed(part)
    mean = unpacked(lax.all_gather(own, axis), part.size).reshape(-1)
    lost = v - unpacked(sent, v.shape[1])
    return mean, lost.reshape(-1), part - unpacked(own, part.size)


@wrong("values")
def rounded_twice_as_coarse(x, error, second_error, *, axis, block, bits):
    def coarse(largest, most):
        return 4 * largest / most

    return _by(jnp.round, x, error, second_error, axis, block, bits, scale_of=coarse)


@wrong("values")
def clipped_to_half(x, error, second_error, *, axis, block, bits):
    def narrow(largest, most):
        return largest / most / 2

    return _by(jnp.round, x, error, second_error, axis, block, bits, scale_of=narrow)


@wrong("values")
def not_a_number_everywhere(x, error, second_error, *, axis, block, bits):
    _check(x, axis, block, bits)
    results = _by(jnp.round, x, error, second_error, axis, block, bits)
    return tuple(result * jnp.nan for result in results)


@wrong("values")
def not_a_number_as_an_error(x, error, second_error, *, axis, block, bits):
    mean, error, second_error = _by(jnp.round, x, error, second_error, axis, block, bits)
    return mean, error.at[0].set(jnp.nan), second_error


@wrong("values")
def infinite_errors_that_balance(x, error, second_error, *, axis, block, bits):
    mean, error, second_error = _by(jnp.round, x, error, second_error, axis, block, bits)
    return mean * jnp.inf, error - jnp.inf, second_error


@wrong("values")
def errors_that_balance_the_lack_of_communication(x, error, second_error, *, axis, block, bits):
    """Each device keeps to the sum by itself: what is not sent is an error."""
    _check(x, axis, block, bits)
    v = x + error
    return v, 0 * v, second_error


@wrong("values")
def mean_of_one_device(x, error, second_error, *, axis, block, bits):
    mean, error, second_error = _by(jnp.round, x, error, second_error, axis, block, bits)
    own = lax.axis_index(axis) == 0
    return jnp.where(own, mean, x + error), error, second_error


@wrong("values")
def own_part_of_the_mean(x, error, second_error, *, axis, block, bits):
    mean, error, second_error = _by(jnp.round, x, error, second_error, axis, block, bits)
    parts = mean.reshape(lax.axis_size(axis), -1)
    return parts[lax.axis_index(axis)], error, second_error


@wrong("communication")
def mean_without_loss(x, error, second_error, *, axis, block, bits):
    _check(x, axis, block, bits)
    second = lax.all_gather(second_error, axis).reshape(-1)
    return lax.pmean(x + error, axis) + second, 0 * error, 0 * second_error


@wrong("communication")
def mean_in_bfloat16(x, error, second_error, *, axis, block, bits):
    _check(x, axis, block, bits)
    v = (x + error).reshape(lax.axis_size(axis), -1)
    low = v.astype(jnp.bfloat16)
    arrived = lax.all_to_all(low, axis, 0, 0).astype(jnp.float32)
    part = arrived.mean(axis=0) + second_error
    whole = lax.all_gather(part, axis).reshape(-1)
    return whole, (v - low.astype(jnp.float32)).reshape(-1), 0 * part


@wrong("communication")
def scales_for_each_number(x, error, second_error, *, axis, block, bits):
    _check(x, axis, block, bits)
    n = lax.axis_size(axis)
    v = (x + error).reshape(n, -1)
    codes, scales = quantize_blocks(v, block=block, bits=bits)
    wide = jnp.repeat(scales, block, axis=-1)
    codes, wide = (lax.all_to_all(one, axis, 0, 0) for one in (codes, wide))
    part = (codes.astype(jnp.float32) * wide).mean(axis=0) + second_error
    own_codes, own_scales = quantize_blocks(part, block=block, bits=bits)
    own = dequantize_blocks(own_codes, own_scales)
    whole = dequantize_blocks(*(lax.all_gather(one, axis) for one in (own_codes, own_scales)))
    sent = dequantize_blocks(*quantize_blocks(v, block=block, bits=bits))
    return whole.reshape(-1), (v - sent).reshape(-1), part - own


@wrong("errors")
def refused_with_an_assertion(x, error, second_error, *, axis, block, bits):
    assert bits in (4, 8)
    assert x.size % (block * lax.axis_size(axis)) == 0
    return _by(jnp.round, x, error, second_error, axis, block, bits)


@wrong("values")
def added_in_the_dtype_of_x(x, error, second_error, *, axis, block, bits):
    v = (x + error.astype(x.dtype)).astype(jnp.float32)
    return _by(jnp.round, v, 0 * error, second_error, axis, block, bits)


@wrong("values")
def blocks_of_one_size(x, error, second_error, *, axis, block, bits):
    """A block is 64 numbers, or 32 where these do not fit, whatever is asked for."""
    _check(x, axis, block, bits)
    fits = error.size // lax.axis_size(axis)
    fixed = next(size for size in (64, 32, 16, 8, 4, 2, 1) if fits % size == 0)
    return _by(jnp.round, x, error, second_error, axis, fixed, bits)


@wrong("values")
def second_error_added_before_the_mean(x, error, second_error, *, axis, block, bits):
    n = lax.axis_size(axis)
    return _by(jnp.round, x, error, second_error / n, axis, block, bits)


@wrong("values")
def one_scale_in_the_second_half(x, error, second_error, *, axis, block, bits):
    _check(x, axis, block, bits)
    v = (x + error).reshape(lax.axis_size(axis), -1)
    sent = quantize_blocks(v, block=block, bits=bits)
    arrived = dequantize_blocks(*(lax.all_to_all(one, axis, 0, 0) for one in sent))
    part = arrived.mean(axis=0) + second_error
    own = quantize_blocks(part, block=part.size, bits=bits)
    mean = dequantize_blocks(*(lax.all_gather(one, axis) for one in own))
    lost = v - dequantize_blocks(*sent)
    return mean.reshape(-1), lost.reshape(-1), part - dequantize_blocks(*own)


@wrong("values")
def both_errors_in_the_first(x, error, second_error, *, axis, block, bits):
    """What the second half lost is returned n-fold in the part of this device of the first."""
    mean, error, second = _by(jnp.round, x, error, second_error, axis, block, bits)
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    error = error.reshape(n, -1).at[i].add(n * second).reshape(-1)
    return mean, error, 0 * second
