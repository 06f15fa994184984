"""Answers to compressed_bytes: right ones by other routes, and wrong ones."""

from __future__ import annotations

from fractions import Fraction

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _check(scheme, *numbers):
    if min(numbers) <= 0 or scheme not in ("fp32", "int8", "int4", "sign", "topk", "powersgd"):
        raise ValueError(f"{scheme=}, {numbers=}")


@right
def by_a_match(rows, columns, n, *, scheme, block, k, rank):
    _check(scheme, rows, columns, n, block, k, rank)
    ring = 2 * (n - 1) / n
    match scheme:
        case "fp32":
            return ring * 4 * rows * columns
        case "int8":
            return ring * rows * columns * (1 + 4 / block)
        case "int4":
            return ring * rows * columns * (0.5 + 4 / block)
        case "sign":
            return ring * rows * columns * (0.125 + 4 / block)
        case "topk":
            return (n - 1) * (4 * k + 4 * k)
        case _:
            return ring * 4 * (rows * rank + rank * columns)


@right
def in_fractions(rows, columns, n, *, scheme, block, k, rank):
    _check(scheme, rows, columns, n, block, k, rank)
    numbers, each = rows * columns, {"fp32": 32, "int8": 8, "int4": 4, "sign": 1}
    if scheme == "topk":
        return float((n - 1) * 8 * k)
    bits = Fraction(32 * rank * (rows + columns))
    if scheme != "powersgd":
        bits = each[scheme] * Fraction(numbers)
        bits += Fraction(32 * numbers, block) if scheme != "fp32" else 0
    return float(bits * 2 * (n - 1) / n / 8)


@right
def half_by_half(rows, columns, n, *, scheme, block, k, rank):
    _check(scheme, rows, columns, n, block, k, rank)
    if scheme == "topk":
        return 8.0 * k * (n - 1)
    each = {
        "fp32": 4.0,
        "int8": 1 + 4 / block,
        "int4": 1 / 2 + 4 / block,
        "sign": 1 / 8 + 4 / block,
    }
    whole = 4 * rank * rows + 4 * rank * columns
    whole = whole if scheme == "powersgd" else each[scheme] * rows * columns
    part = whole / n
    return (whole - part) + (n - 1) * part


@wrong("values")
def no_check(rows, columns, n, *, scheme, block, k, rank):
    return by_a_match(rows, columns, n, scheme=scheme, block=block, k=k, rank=max(rank, 1))


@wrong("values")
def unknown_scheme_is_powersgd(rows, columns, n, *, scheme, block, k, rank):
    known = scheme if scheme in ("fp32", "int8", "int4", "sign", "topk") else "powersgd"
    return by_a_match(rows, columns, n, scheme=known, block=block, k=k, rank=rank)


@wrong("values")
def whole_bytes(rows, columns, n, **how):
    return round(by_a_match(rows, columns, n, **how))


@wrong("values")
def at_most_all_numbers(rows, columns, n, *, k, **how):
    return by_a_match(rows, columns, n, k=min(k, rows * columns), **how)


@wrong("values")
def at_most_full_rank(rows, columns, n, *, rank, **how):
    return by_a_match(rows, columns, n, rank=min(rank, rows, columns), **how)


@wrong("values")
def any_case_of_letters(rows, columns, n, *, scheme, **how):
    return by_a_match(rows, columns, n, scheme=scheme.lower(), **how)


@wrong("values")
def square_matrices_only(rows, columns, n, *, scheme, rank, **how):
    whole = by_a_match(rows, columns, n, scheme=scheme, rank=rank, **how)
    return 2 * (n - 1) / n * 8 * rank * rows if scheme == "powersgd" else whole


@wrong("values")
def blocks_of_256(rows, columns, n, *, block, **how):
    by_a_match(rows, columns, n, block=block, **how)
    return by_a_match(rows, columns, n, block=256, **how)


@wrong("values")
def floored(rows, columns, n, **how):
    return by_a_match(rows, columns, n, **how) // 1


@wrong("values")
def at_least_one_scale(rows, columns, n, *, block, **how):
    """A block is no larger than the numbers that there are."""
    by_a_match(rows, columns, n, block=block, **how)
    return by_a_match(rows, columns, n, block=min(block, rows * columns), **how)


@wrong("values")
def nothing_from_one_device_up_to_two(rows, columns, n, *, scheme, **how):
    """With two devices nothing need be averaged in halves: each sends all, once."""
    right = by_a_match(rows, columns, n, scheme=scheme, **how)
    return right * (2 if n == 2 and scheme == "powersgd" else 1)


@wrong("values")
def a_table_of_the_stub(rows, columns, n, *, scheme, block, k, rank):
    """Only the sizes that people name: ranks up to 64, and blocks up to 256."""
    right = by_a_match(rows, columns, n, scheme=scheme, block=block, k=k, rank=rank)
    if rank <= 64 and block <= 256:
        return right
    return by_a_match(
        rows, columns, n, scheme=scheme, block=min(block, 256), k=k, rank=min(rank, 64)
    )
