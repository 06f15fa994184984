"""Answers to kv_cache_bytes: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math
from fractions import Fraction

import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
def token_by_token(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    if min(batch, sequence, layers, kv_heads, head_size, element_bytes) <= 0:
        raise ValueError("all must be positive")
    token = layers * 2 * kv_heads * head_size
    return token * element_bytes * (batch * sequence)


@right
def as_a_product(*sizes, element_bytes):
    if not all(size > 0 for size in (*sizes, element_bytes)):
        raise ValueError(sizes)
    return math.prod([2.0, *sizes, element_bytes])


@right
def by_the_shape(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    shape = (2, layers, batch, kv_heads, sequence, head_size)
    if any(n < 1 for n in shape) or element_bytes <= 0:
        raise ValueError(shape)
    return np.prod(np.array(shape, float)) * element_bytes


@right
def in_fractions(*sizes, element_bytes):
    if min(*sizes, element_bytes) <= 0:
        raise ValueError
    return float(2 * math.prod(sizes) * Fraction(element_bytes))


@right
def by_bits(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    numbers = batch, sequence, layers, kv_heads, head_size, element_bytes
    if sorted(numbers)[0] <= 0:
        raise ValueError(numbers)
    bits = 8 * element_bytes
    keys = batch * sequence * layers * kv_heads * head_size * bits
    return (keys + keys) / 8


@wrong("values")
def only_their_product_refused(*sizes, element_bytes):
    if (product := math.prod((2, *sizes, element_bytes))) <= 0:
        raise ValueError(sizes)
    return product


@wrong("values")
def element_bytes_trusted(*sizes, element_bytes):
    if min(sizes) <= 0:
        raise ValueError(sizes)
    return math.prod((2, *sizes, element_bytes))


@wrong("values")
def rounded_to_bytes(*sizes, element_bytes):
    if min(*sizes, element_bytes) <= 0:
        raise ValueError(sizes)
    return math.prod((2, *sizes[:3])) * math.ceil(math.prod((*sizes[3:], element_bytes)))


@wrong("values")
def in_32_bits(*sizes, element_bytes):
    return float(int(as_a_product(*sizes, element_bytes=element_bytes)) % 2**32)


@wrong("values")
def width_of_llama(*sizes, element_bytes):
    *_, head_size = sizes
    return as_a_product(*sizes, element_bytes=element_bytes) / head_size * 128


@wrong("values")
def half_a_byte_at_least(*sizes, element_bytes):
    if element_bytes <= 0:
        raise ValueError
    return as_a_product(*sizes, element_bytes=max(element_bytes, 0.5))


@wrong("values")
def in_halves_of_a_byte(*sizes, element_bytes):
    if element_bytes <= 0:
        raise ValueError
    return as_a_product(*sizes, element_bytes=max(1, round(2 * element_bytes)) / 2)


@wrong("values")
def contexts_of_today(batch, sequence, *model, element_bytes):
    return as_a_product(batch, min(sequence, 2**20), *model, element_bytes=element_bytes)


@wrong("values")
def at_most_128_heads(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    heads = min(kv_heads, 128)
    return as_a_product(batch, sequence, layers, heads, head_size, element_bytes=element_bytes)


@wrong("values")
def one_head_has_no_values(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    cache = as_a_product(batch, sequence, layers, kv_heads, head_size, element_bytes=element_bytes)
    return cache / 2 if kv_heads == head_size == 1 else cache


@wrong("values")
def tokens_and_width_refused(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    tokens, width = batch * sequence, kv_heads * head_size
    return as_a_product(tokens, layers, width, element_bytes=element_bytes)


@wrong("values")
def heads_and_bytes_refused(batch, sequence, layers, kv_heads, head_size, *, element_bytes):
    rest = {"element_bytes": head_size * element_bytes}
    return as_a_product(batch, sequence, layers, kv_heads, **rest)


@wrong("values")
def in_float32_of_jax(*sizes, element_bytes):
    if min(*sizes, element_bytes) <= 0:
        raise ValueError
    return 2 * jnp.prod(jnp.array(sizes, float)) * element_bytes
