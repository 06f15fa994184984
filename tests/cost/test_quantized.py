"""Bits of numbers and their scales, by hand."""

from typing import Any

import pytest

from jaxpar.cost.quantized import quantized_bits


@pytest.mark.parametrize(
    ("bits", "how", "expected"),
    [
        (4, {"group": 64}, 4.5),
        (4, {"group": 64, "scale_bits": 8, "double_group": 256}, 4 + 8 / 64 + 32 / 16_384),
        (8, {"group": 256}, 8.125),
        (4, {"group": 32, "scale_bits": 8}, 4.25),
        (3, {"group": 128, "scale_bits": 16}, 3.125),
    ],
)
def test_a_number_has_its_part_of_the_scales(bits: int, how: Any, expected: float) -> None:
    assert quantized_bits(bits, **how) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["bits", "group", "scale_bits", "double_group"])
def test_numbers_are_above_0(name: str) -> None:
    numbers = {"bits": 4, "group": 64, "scale_bits": 8, "double_group": 256, name: 0}
    with pytest.raises(ValueError, match=f"quantized_bits: {name} is 0"):
        quantized_bits(**numbers)
