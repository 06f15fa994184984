"""Answers to quantized_bits: right ones by other routes, and wrong ones."""

from __future__ import annotations

from fractions import Fraction

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _check(*numbers):
    if any(number is not None and number <= 0 for number in numbers):
        raise ValueError(f"{numbers}")


@right
def from_one_group_of_groups(bits, *, group, scale_bits=32, double_group=None):
    _check(bits, group, scale_bits, double_group)
    groups = double_group or 1
    second = 32 if double_group else 0
    return (groups * (group * bits + scale_bits) + second) / (groups * group)


@right
def in_fractions(bits, *, group, scale_bits=32, double_group=None):
    _check(bits, group, scale_bits, double_group)
    total = Fraction(bits) + Fraction(scale_bits, group)
    if double_group is not None:
        total += Fraction(32, group * double_group)
    return float(total)


@wrong("values")
def no_check(bits, *, group, scale_bits=32, double_group=None):
    second = 32 / (group * double_group) if double_group is not None else 0
    return bits + scale_bits / group + second


@wrong("values")
def only_zero_refused(bits, *, group, scale_bits=32, double_group=None):
    if 0 in (bits, group, scale_bits, double_group):
        raise ValueError("zero")
    second = 32 / (group * double_group) if double_group is not None else 0
    return bits + scale_bits / group + second


@wrong("values")
def groups_of_64(bits, *, group, scale_bits=32, double_group=None):
    _check(bits, group, scale_bits, double_group)
    second = 32 / (64 * double_group) if double_group is not None else 0
    return bits + scale_bits / 64 + second


@wrong("values")
def second_groups_of_256(bits, *, group, scale_bits=32, double_group=None):
    _check(bits, group, scale_bits, double_group)
    second = 32 / (group * 256) if double_group is not None else 0
    return bits + scale_bits / group + second


@wrong("values")
def whole_numbers(bits, *, group, scale_bits=32, double_group=None):
    _check(bits, group, scale_bits, double_group)
    second = 32 // (group * double_group) if double_group is not None else 0
    return bits + scale_bits // group + second


@wrong("values")
def two_digits(bits, *, group, scale_bits=32, double_group=None):
    _check(bits, group, scale_bits, double_group)
    second = 32 / (group * double_group) if double_group is not None else 0
    return round(bits + scale_bits / group + second, 2)


@wrong("values")
def scale_is_at_most_float32(bits, *, group, scale_bits=32, double_group=None):
    _check(bits, group, scale_bits, double_group)
    second = 32 / (group * double_group) if double_group is not None else 0
    return bits + min(scale_bits, 32) / group + second


@wrong("values")
def second_scales_as_wide_as_codes(bits, *, group, scale_bits=32, double_group=None):
    _check(bits, group, scale_bits, double_group)
    second = bits / (group * double_group) if double_group is not None else 0
    return bits + scale_bits / group + second
