"""Exercise kv_cache_bytes: what tokens leave behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.planner.common import random_size, scaled
from jaxpar.cost.inference import kv_cache_bytes

# Layers, heads of keys, head size: Llama 3 8B, 70B and 405B, OPT-13B, GPT-3.
_MODELS = ((32, 8, 128), (80, 8, 128), (126, 8, 128), (40, 40, 128), (96, 96, 128))


def _caches(rng: np.random.Generator) -> list[Call]:
    """A few tokens, a token of published models, any sizes, then what is refused."""

    def call(*sizes: int, each: float = 2) -> Call:
        return sizes, {"element_bytes": each}

    calls = [call(1, 1, 32, 8, 128), call(2, 10, 3, 4, 5, each=1), call(3, 7, 2, 1, 64, each=0.5)]
    calls.append(call(5, 3, 7, 1, 3, each=0.5))  # a key ends within a byte
    calls += [call(1, 1, *model) for model in _MODELS]
    calls += [call(16, 131_072, *model) for model in _MODELS]
    for each in (0.5, 1, 2, 4, 0.5, 2):
        sizes = [random_size(rng, 2, high) for high in (300, 200_000, 130, 100, 300)]
        calls.append(call(*sizes, each=each))
    right = tuple(int(n) for n in rng.integers(2, 9, 5))
    for place, refused in product(range(5), (0, -1)):
        calls.append(call(*right[:place], refused, *right[place + 1 :]))
    calls.append(call(-right[0], -right[1], *right[2:]))  # a product above 0
    return [*calls, call(*right, each=0), call(*right, each=-2)]


def _as_float(*sizes: int, element_bytes: float) -> float:
    """A float, so that an answer may give one or a whole number."""
    return float(kv_cache_bytes(*sizes, element_bytes=element_bytes))


CONTRACT = Contract(
    kind="value",
    task="return the bytes of all keys and values: what each token adds, times tokens",
    reference=kv_cache_bytes,
    oracle=_as_float,
    values=_caches,
    hints=(
        "What does one token leave behind in one layer, for one head? How many such are there?",
        "A key and a value, each of head_size elements, for each head of keys, layer and token.",
        "2 * batch * sequence * layers * kv_heads * head_size * element_bytes; first raise "
        "ValueError where one of them is 0 or below.",
    ),
    minimal="Each key and each value is read again for every later token; nothing else is kept.",
    harder="Write it for layers that look back over a window only, or keep one latent vector.",
)


@wrong("values")
def cache_of_keys_alone(*args: Any, **how: Any) -> Any:
    """The result is half of the right one; keys and values are both kept."""
    return (scaled(kv_cache_bytes, 1 / 2))(*args, **how)


SIZES = ("batch", "sequence", "layers", "kv_heads", "head_size")


def _without(name: str) -> Callable:
    """The cache, where one of the sizes is left out."""

    def wrong(*sizes: int, element_bytes: float) -> float:
        return kv_cache_bytes(*sizes, element_bytes=element_bytes) / sizes[SIZES.index(name)]

    return wrong


@wrong("values")
def cache_of_one_example(*args: Any, **how: Any) -> Any:
    """This is the cache of one example; multiply by `batch`."""
    return (_without("batch"))(*args, **how)


@wrong("values")
def cache_of_one_token(*args: Any, **how: Any) -> Any:
    """This is what one token adds; multiply by `sequence`."""
    return (_without("sequence"))(*args, **how)


@wrong("values")
def cache_of_one_layer(*args: Any, **how: Any) -> Any:
    """This is the cache of one layer; each has its own, so multiply by `layers`."""
    return (_without("layers"))(*args, **how)


@wrong("values")
def cache_of_one_head(*args: Any, **how: Any) -> Any:
    """`kv_heads` is left out; each head of keys has head_size elements."""
    return (_without("kv_heads"))(*args, **how)


@wrong("values")
def cache_of_one_element(*args: Any, **how: Any) -> Any:
    """`head_size` is left out; a key has so many elements in each head."""
    return (_without("head_size"))(*args, **how)


@wrong("values")
def cache_of_scores(batch: int, sequence: int, *sizes: int, element_bytes: float) -> float:
    """The cache grows with the square of `sequence`; scores are not kept, so count keys and values
    alone."""
    return kv_cache_bytes(batch, sequence, *sizes, element_bytes=element_bytes) * sequence


@wrong("values")
def cache_in_bits(*args: Any, **how: Any) -> Any:
    """The cache is eight times too large: it is in bits; return bytes."""
    return (scaled(kv_cache_bytes, 8))(*args, **how)


@wrong("values")
def cache_given_in_bits(*args: Any, **how: Any) -> Any:
    """The result is an eighth of the right one; element_bytes is bytes already, so divide by
    nothing."""
    return (scaled(kv_cache_bytes, 1 / 8))(*args, **how)


@wrong("values")
def cache_in_gb(*args: Any, **how: Any) -> Any:
    """The cache is in GB; return bytes."""
    return (scaled(kv_cache_bytes, 1e-9))(*args, **how)


@wrong("values")
def cache_in_gib(*args: Any, **how: Any) -> Any:
    """The cache is in GiB; return bytes."""
    return (scaled(kv_cache_bytes, 2**-30))(*args, **how)


@wrong("values")
def cache_always_16_bits(*sizes: int, element_bytes: float) -> float:
    """Elements always take 2 bytes; use `element_bytes`."""
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / element_bytes * 2


@wrong("values")
def cache_of_whole_bytes(*sizes: int, element_bytes: float) -> float:
    """element_bytes is rounded; two elements of 4 bits share a byte, so take it as it is."""
    cache = kv_cache_bytes(*sizes, element_bytes=element_bytes)
    return cache / element_bytes * math.ceil(element_bytes)


@wrong("values")
def cache_of_anything(*sizes: int, element_bytes: float) -> float:
    """A cache of sizes or element_bytes of 0 or below must raise ValueError."""
    return 2 * math.prod(sizes) * element_bytes
