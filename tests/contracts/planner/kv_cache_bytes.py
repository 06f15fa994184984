"""Answers to kv_cache_bytes: right ones by other routes, and wrong ones."""

from __future__ import annotations

import math

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
