"""The bits that a number takes, with its part of the scales."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread, not_positive
from jaxpar.cost.quantized import FLOAT_BITS, quantized_bits


def _formats(rng: np.random.Generator) -> list[Call]:
    """What people use, any numbers, then what is refused."""

    def call(*numbers: float | None) -> Call:
        bits, group, scale_bits, double_group = (n if n is None else int(n) for n in numbers)
        kwargs = {"group": group, "scale_bits": scale_bits, "double_group": double_group}
        return (bits,), kwargs

    calls = [
        call(4, 64, 32, None),  # NF4
        call(4, 64, 8, 256),  # QLoRA
        call(8, 256, 32, None),  # 8-bit optimizers
        call(4, 32, 8, None),  # MXFP4
        call(3, 128, 16, None),
        call(16, 1, 32, 1),
        call(1, 12_288 * 49_152, 32, None),
    ]
    for double in (False, True):
        spreads = [log_spread(rng, 1, high, 4) for high in (32, 1e5, 64, 1e4)]
        for bits, group, scale_bits, second in zip(*spreads, strict=True):
            calls.append(call(bits, group, scale_bits, second if double else None))
    calls += [call(2, 1, 3, double) for double in log_spread(rng, 7e3, 1e4, 3)]
    right = tuple(map(int, rng.integers(2, 9, 4)))
    calls += [call(*numbers) for numbers in not_positive(right)]
    return calls + [call(*numbers, None) for numbers in not_positive(right[:3])]


CONTRACT = Contract(
    kind="value",
    task="return the bits that a number takes, with its part of the scales",
    reference=quantized_bits,
    oracle=quantized_bits,
    values=_formats,
    hints=(
        "A scale belongs to `group` numbers, so each of them has a part of it. How many bits is "
        "that?",
        "A second scale belongs to `double_group` scales, of `group` numbers each: 32 bits for "
        "group * double_group numbers.",
        "bits + scale_bits / group, and 32 / (group * double_group) more unless double_group is "
        "None; first raise ValueError for numbers not above 0.",
    ),
    minimal="Large groups take fewer bits, and lose more: one large number sets the scale of more "
    "others.",
    harder="2:4 sparsity keeps two of four numbers, and two bits for the place of each. How many "
    "bits is that for numbers of 16 bits, and of 4?",
)


@wrong("values")
def scales_not_counted(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """The scales are left out; each group of numbers has one."""
    quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return float(bits)


@wrong("values")
def whole_scale_for_each(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """Each number is counted with a whole scale; `group` numbers share it."""
    right = quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return bits + (right - bits) * group


@wrong("values")
def codes_of_a_group_once(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """The code is divided by the group as well; each number has a code of its own."""
    right = quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return right - bits + bits / group


@wrong("values")
def bits_of_a_group(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """These are the bits of a whole group; return those of one number."""
    right = quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return right * group


@wrong("values")
def second_scales_not_counted(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """The scales of the scales are left out; each is a float32 for `double_group` scales."""
    quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return bits + scale_bits / group


@wrong("values")
def second_scale_for_double_group_numbers(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """A second scale is divided among `double_group` numbers; it belongs to as many *scales*, of
    `group` numbers each."""
    right = quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    if double_group is None:
        return right
    return bits + scale_bits / group + FLOAT_BITS / double_group


@wrong("values")
def second_scale_in_scale_bits(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """The second scale is counted with `scale_bits`; it is a float32."""
    right = quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    if double_group is None:
        return right
    return bits + scale_bits / group + scale_bits / (group * double_group)


@wrong("values")
def first_scales_dropped(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """With double quantization you count only the second scales; the first ones are kept, too, in
    fewer bits."""
    right = quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return right if double_group is None else bits + FLOAT_BITS / (group * double_group)


@wrong("values")
def first_scales_in_32_bits(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """The first scales are always counted as 32 bits; they have `scale_bits`."""
    quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return quantized_bits(bits, group=group, double_group=double_group)


@wrong("values")
def zero_point_added(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """Two numbers are counted for each group, as if it had a zero point; here it has a scale
    only."""
    right = quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return bits + 2 * (right - bits)


@wrong("values")
def result_in_bytes(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """The result is in bytes; return bits."""
    right = quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return right / 8


@wrong("values")
def rounded_up(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """The result is rounded to whole bits; a number's part of a scale is a fraction of a bit."""
    right = quantized_bits(bits, group=group, scale_bits=scale_bits, double_group=double_group)
    return float(-(-right // 1))


@wrong("values")
def anything_taken(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """Raise ValueError where a number is not above 0."""
    second = FLOAT_BITS / double_group if double_group else 0
    return bits + (scale_bits + second) / (group or 1)


@wrong("values")
def zero_for_none(bits, *, group, scale_bits=FLOAT_BITS, double_group=None):
    """A double_group of 0 is taken for None; only None means that there is no second scale."""
    return quantized_bits(
        bits, group=group, scale_bits=scale_bits, double_group=double_group or None
    )
