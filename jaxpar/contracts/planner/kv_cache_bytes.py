"""The bytes of all keys and values that tokens leave behind."""

from __future__ import annotations

import math

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread, not_positive
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
    # A size of 1, and one of many; elements of 1, 3 and 8.5 bits, and of 16 bytes; more of all than
    # there is today: no limit and no rounding is right.
    calls += [call(1, 1, 1, 1, 1, each=each) for each in (0.5, 0.125, 0.375, 1.0625, 1, 8, 16)]
    for place, size in enumerate(some := (3, 5, 2, 4, 7)):
        calls += [call(*some[:place], n, *some[place + 1 :], each=4) for n in (1, 1000 * size + 1)]
    calls += [call(1, 10**7, 126, 8, 128), call(10**5, 10**6, 300, 2, 64, each=0.75)]
    calls += [call(10**4, 10**3, 200, 576, 2048, each=0.3)]
    spreads = (log_spread(rng, 2, high, 7) for high in (1e4, 1e6, 200, 200, 600))
    each_bytes = (0.5, 1, 2, 4, 0.25, 1.5, float(rng.uniform(0.1, 3)))
    for each, *sizes in zip(each_bytes, *spreads, strict=True):
        calls.append(call(*map(int, sizes), each=each))
    right = tuple(int(n) for n in rng.integers(2, 9, 5))
    for *sizes, each in not_positive((*right, 2)):
        calls.append(call(*map(int, sizes), each=each))
    return [*calls, call(*right, each=-0.5)]


def _as_float(*sizes: int, element_bytes: float) -> float:
    """A float, so that an answer may give one or a whole number."""
    return float(kv_cache_bytes(*sizes, element_bytes=element_bytes))


CONTRACT = Contract(
    kind="value",
    task="return the bytes of all keys and values: what each token adds, times the number of "
    "tokens",
    reference=kv_cache_bytes,
    oracle=_as_float,
    values=_caches,
    hints=(
        "What does one token leave behind in one layer, for one head? How many tokens, layers and "
        "heads are there?",
        "A key and a value, each of head_size elements, for each head of keys, layer and token.",
        "2 * batch * sequence * layers * kv_heads * head_size * element_bytes; first raise "
        "ValueError where one of them is 0 or below.",
    ),
    minimal="Each key and each value is read again for every later token; nothing else is kept.",
    harder="Write it for layers that look back over a window only, or keep one latent vector.",
)


@wrong("values")
def cache_of_keys_alone(*sizes: int, element_bytes: float) -> float:
    """The result is half as large as it should be; both keys and values are kept."""
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / 2


@wrong("values")
def cache_of_one_example(*sizes: int, element_bytes: float) -> float:
    """This is the cache of one example; multiply by `batch`."""
    batch, *_ = sizes
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / batch


@wrong("values")
def cache_of_one_token(*sizes: int, element_bytes: float) -> float:
    """This is what one token adds; multiply by `sequence`."""
    _, sequence, *_ = sizes
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / sequence


@wrong("values")
def cache_of_one_layer(*sizes: int, element_bytes: float) -> float:
    """This is the cache of one layer; each has its own, so multiply by `layers`."""
    _, _, layers, _, _ = sizes
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / layers


@wrong("values")
def cache_of_one_head(*sizes: int, element_bytes: float) -> float:
    """You leave `kv_heads` out; each head of keys has head_size elements."""
    _, _, _, kv_heads, _ = sizes
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / kv_heads


@wrong("values")
def cache_of_one_element(*sizes: int, element_bytes: float) -> float:
    """You leave `head_size` out; a key has that many elements in each head."""
    *_, head_size = sizes
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / head_size


@wrong("values")
def cache_of_scores(*sizes: int, element_bytes: float) -> float:
    """The cache grows with the square of `sequence`; scores are not kept, so count keys and values
    alone."""
    _, sequence, *_ = sizes
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) * sequence


@wrong("values")
def cache_in_bits(*sizes: int, element_bytes: float) -> float:
    """The cache is eight times too large: it is in bits; return bytes."""
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) * 8


@wrong("values")
def cache_given_in_bits(*sizes: int, element_bytes: float) -> float:
    """The result is an eighth of the right one; element_bytes is in bytes already, so do not divide
    it by 8."""
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / 8


@wrong("values")
def cache_in_gb(*sizes: int, element_bytes: float) -> float:
    """The cache is in GB; return bytes."""
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / 1e9


@wrong("values")
def cache_in_gib(*sizes: int, element_bytes: float) -> float:
    """The cache is in GiB; return bytes."""
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / 2**30


@wrong("values")
def cache_always_16_bits(*sizes: int, element_bytes: float) -> float:
    """Elements always take 2 bytes; use `element_bytes`."""
    return kv_cache_bytes(*sizes, element_bytes=element_bytes) / element_bytes * 2


@wrong("values")
def cache_of_whole_bytes(*sizes: int, element_bytes: float) -> float:
    """You round element_bytes; two elements of 4 bits fit into one byte, so use it as it is."""
    elements = kv_cache_bytes(*sizes, element_bytes=element_bytes) / element_bytes
    return elements * math.ceil(element_bytes)


@wrong("values")
def cache_in_whole_numbers(*sizes: int, element_bytes: float) -> float:
    """You round the result to whole bytes; a few elements of 4 bits may end within a byte, so
    return it as it is."""
    return math.ceil(kv_cache_bytes(*sizes, element_bytes=element_bytes))


@wrong("values")
def cache_of_usual_elements(*sizes: int, element_bytes: float) -> float:
    """Elements may have any size above 0, such as 3 bits or 8.5; use `element_bytes` as it is."""
    if element_bytes > 0 and element_bytes not in (0.5, 1, 2, 4):
        raise ValueError("element_bytes")
    return kv_cache_bytes(*sizes, element_bytes=element_bytes)


@wrong("values")
def cache_of_anything(*sizes: int, element_bytes: float) -> float:
    """Raise ValueError where a size or element_bytes is 0 or below."""
    return 2 * math.prod(sizes) * element_bytes
