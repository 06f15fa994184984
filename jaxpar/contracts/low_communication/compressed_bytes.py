"""The bytes that each device sends to average a matrix of gradients, by six schemes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread, not_positive
from jaxpar.cost.compress import SCHEMES, compressed_bytes

_CODES = {"int8": 8, "int4": 4, "sign": 1}


def _matrices(rng: np.random.Generator) -> list[Call]:
    """Few numbers, a layer of GPT-3, any numbers, then what is refused."""

    def call(scheme: str, *numbers: float) -> Call:
        rows, columns, n, block, k, rank = map(int, numbers)
        return (rows, columns, n), {"scheme": scheme, "block": block, "k": k, "rank": rank}

    calls = []
    for scheme in SCHEMES:
        calls += [call(scheme, 8, 4, 2, 8, 3, 1), call(scheme, 128, 64, 8, 64, 32, 4)]
        calls += [call(scheme, 12_288, 49_152, 1024, 256, 6_039_797, 32)]
        # One device; sizes that nothing divides; blocks of 1, or of more than there are.
        calls += [call(scheme, 64, 64, 1, 16, 8, 2), call(scheme, 7, 5, 3, 4, 2, 1)]
        calls += [call(scheme, 30, 20, 6, 1, 1, 1), call(scheme, 4, 4, 2, 64, 100, 9)]
        calls += [call(scheme, 1000, 3, 5, 10, 17, 3), call(scheme, 3, 1000, 5, 10, 17, 3)]
        spreads = (log_spread(rng, 2, high, 3) for high in (1e5, 1e5, 1e4, 1e4, 1e6, 512))
        calls += [call(scheme, *numbers) for numbers in zip(*spreads, strict=True)]
    right = tuple(map(int, rng.integers(2, 9, 6)))
    for scheme in SCHEMES:
        calls += [call(scheme, *numbers) for numbers in not_positive(right)]
    return [*calls, *(call(scheme, *right) for scheme in ("int2", "INT8", ""))]


CONTRACT = Contract(
    kind="value",
    task="return the bytes that each device sends to average a matrix of gradients, by the scheme",
    reference=compressed_bytes,
    oracle=compressed_bytes,
    values=_matrices,
    hints=(
        "Two things decide: how many bytes a device contributes, and whether they can be added up "
        "on the way. What can be, or is averaged part by part, costs 2(n-1)/n of it, in two "
        "halves; what cannot be is gathered, which costs n-1 times what each device contributes.",
        "Codes take bits/8 bytes a number, and a scale of 4 bytes for each block. A number of "
        "topk is 4 bytes and its place 4 more. PowerSGD sends rows*rank and columns*rank floats.",
        "With N = rows*columns: 2*(n-1)/n * N * (bits/8 + 4/block), (n-1) * 8 * k, and "
        "2*(n-1)/n * 4 * rank * (rows + columns); first raise ValueError for numbers not above 0.",
    ),
    minimal="Fewer bytes lose more of a gradient. What that does to the loss, a formula does not "
    "say: the lesson measures it.",
    harder="From which n on does topk with k = N/100 send more than float32?",
)


def _times(factor: float, *schemes: str) -> Any:
    """The right bytes, times a factor for these schemes."""

    def answer(rows: int, columns: int, n: int, *, scheme: str, **how: int) -> float:
        right = compressed_bytes(rows, columns, n, scheme=scheme, **how)
        return right * (factor if scheme in schemes else 1)

    return answer


@wrong("values")
def scales_forgotten(rows, columns, n, *, scheme, **how):
    """The scales of the blocks are left out; each block of int8, int4 and sign brings one of 4
    bytes."""
    right = compressed_bytes(rows, columns, n, scheme=scheme, **how)
    if scheme not in _CODES:
        return right
    return 2 * (n - 1) / n * rows * columns * _CODES[scheme] / 8


@wrong("values")
def places_forgotten(rows, columns, n, *, scheme, **how):
    """The places of the k numbers are left out; each takes 4 bytes as well."""
    return _times(0.5, "topk")(rows, columns, n, scheme=scheme, **how)


@wrong("values")
def one_half_only(rows, columns, n, *, scheme, **how):
    """One half of the all-reduce is left out: codes are exchanged, and the mean is gathered; count
    both."""
    return _times(0.5, *_CODES)(rows, columns, n, scheme=scheme, **how)


@wrong("values")
def one_half_of_all(rows, columns, n, *, scheme, **how):
    """An all-reduce has two halves, and you count one; float32, codes and the factors of PowerSGD
    are sent twice."""
    half = _times(0.5, "fp32", "powersgd", *_CODES)
    return half(rows, columns, n, scheme=scheme, **how)


@wrong("values")
def bits_for_bytes(rows, columns, n, *, scheme, **how):
    """Bits are taken for bytes: codes of 8 bits take one byte a number, those of 4 bits half of
    one."""
    right = compressed_bytes(rows, columns, n, scheme=scheme, **how)
    if scheme not in _CODES:
        return right
    return 2 * (n - 1) / n * rows * columns * (_CODES[scheme] + 4 / how["block"])


@wrong("values")
def result_in_bits(rows, columns, n, **how):
    """The result is eight times too large: it is in bits; return bytes."""
    return 8 * compressed_bytes(rows, columns, n, **how)


@wrong("values")
def no_ring(rows, columns, n, *, scheme, **how):
    """What a device holds is taken for what it sends; an all-reduce sends 2(n-1)/n of it, and an
    all-gather n-1 times."""
    right = compressed_bytes(rows, columns, n, scheme=scheme, **how)
    two = compressed_bytes(rows, columns, 2, scheme=scheme, **how)  # with 2 devices, once
    return two if right or n == 1 else right


@wrong("values")
def always_twice(rows, columns, n, *, scheme, **how):
    """An all-reduce is taken for twice its operand; a device need not send its own part to itself,
    so it is 2(n-1)/n."""
    right = compressed_bytes(rows, columns, n, scheme=scheme, **how)
    if scheme == "topk":
        return right
    return 2 * compressed_bytes(rows, columns, 2, scheme=scheme, **how)


@wrong("values")
def rows_times_rank_only(rows, columns, n, *, scheme, rank, **how):
    """Only one factor of PowerSGD is counted; it sends rows*rank and columns*rank numbers."""
    right = compressed_bytes(rows, columns, n, scheme=scheme, rank=rank, **how)
    return 2 * (n - 1) / n * 4 * rows * rank if scheme == "powersgd" else right


@wrong("values")
def factors_multiplied(rows, columns, n, *, scheme, rank, **how):
    """PowerSGD sends its two factors, not their product; add rows and columns, do not multiply
    them."""
    right = compressed_bytes(rows, columns, n, scheme=scheme, rank=rank, **how)
    return 2 * (n - 1) / n * 4 * rows * columns * rank if scheme == "powersgd" else right


@wrong("values")
def largest_all_reduced(rows, columns, n, *, scheme, k, **how):
    """topk is counted as an all-reduce; devices send other places, so what they send is gathered:
    n-1 times the bytes of one."""
    right = compressed_bytes(rows, columns, n, scheme=scheme, k=k, **how)
    return 2 * (n - 1) / n * 8 * k if scheme == "topk" else right


@wrong("values")
def everything_gathered(rows, columns, n, *, scheme, **how):
    """Codes are counted as gathered from all devices; each device averages one part, so they cost
    2(n-1)/n and not n-1."""
    return _times(n / 2, *_CODES)(rows, columns, n, scheme=scheme, **how)


@wrong("values")
def scales_in_two_bytes(rows, columns, n, *, scheme, block, **how):
    """The scales are counted as 2 bytes; they are float32, of 4."""
    right = compressed_bytes(rows, columns, n, scheme=scheme, block=block, **how)
    if scheme not in _CODES:
        return right
    return 2 * (n - 1) / n * rows * columns * (_CODES[scheme] / 8 + 2 / block)


@wrong("values")
def four_bits_in_a_byte(rows, columns, n, *, scheme, block, **how):
    """Codes of 4 bits are counted as a byte each; two of them share one."""
    name = "int8" if scheme == "int4" else scheme
    compressed_bytes(rows, columns, n, scheme=scheme, block=block, **how)
    return compressed_bytes(rows, columns, n, scheme=name, block=block, **how)


@wrong("values")
def signs_in_a_byte(rows, columns, n, *, scheme, **how):
    """A sign is counted as a byte; eight of them share one."""
    name = "int8" if scheme == "sign" else scheme
    compressed_bytes(rows, columns, n, scheme=scheme, **how)
    return compressed_bytes(rows, columns, n, scheme=name, **how)


@wrong("values")
def bytes_of_all_devices(rows, columns, n, **how):
    """This is what all devices send together; return what one sends."""
    return n * compressed_bytes(rows, columns, n, **how)


@wrong("values")
def whole_blocks_only(rows, columns, n, *, scheme, block, **how):
    """The number of blocks is rounded up; nothing is rounded or padded here."""
    right = compressed_bytes(rows, columns, n, scheme=scheme, block=block, **how)
    if scheme not in _CODES:
        return right
    numbers = rows * columns
    return 2 * (n - 1) / n * (numbers * _CODES[scheme] / 8 + 4 * -(-numbers // block))


@wrong("values")
def unknown_scheme_is_float32(rows, columns, n, *, scheme, **how):
    """Raise ValueError where `scheme` is none of the six."""
    known = scheme if scheme in SCHEMES else "fp32"
    return compressed_bytes(rows, columns, n, scheme=known, **how)


@wrong("values")
def any_number_taken(rows, columns, n, *, scheme, **how):
    """Raise ValueError where a number is not above 0."""
    if scheme not in SCHEMES:
        raise ValueError(scheme)
    return _formula(rows, columns, n or 1, scheme, how)


@wrong("values")
def only_what_matters_checked(rows, columns, n, *, scheme, block, k, rank):
    """Raise ValueError where a number is not above 0, even one that this scheme does not use."""
    used = {"topk": {"k"}, "powersgd": {"rank"}}.get(
        scheme, {"block"} if scheme in _CODES else set()
    )
    numbers = {
        name: value if name in used else 1
        for name, value in (("block", block), ("k", k), ("rank", rank))
    }
    return compressed_bytes(rows, columns, n, scheme=scheme, **numbers)


def _formula(rows: int, columns: int, n: int, scheme: str, how: Mapping[str, int]) -> float:
    """The bytes, without a check."""
    whole = {
        "fp32": 4 * rows * columns,
        "powersgd": 4 * how["rank"] * (rows + columns),
    }
    if scheme == "topk":
        return (n - 1) * 8.0 * how["k"]
    if scheme in _CODES:
        return 2 * (n - 1) / n * rows * columns * (_CODES[scheme] / 8 + 4 / (how["block"] or 1))
    return 2 * (n - 1) / n * whole[scheme]
