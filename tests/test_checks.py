"""Checks of arguments accept what is allowed, and name what they refuse."""

import math

import pytest

from jaxpar.checks import check_one_of, check_positive


def test_a_choice_is_one_of_few() -> None:
    check_one_of("plan", "zero", 3, (0, 1, 2, 3))
    with pytest.raises(ValueError, match=r"^plan: zero is '3'; use one of 0, 1, 2, 3$"):
        check_one_of("plan", "zero", "3", (0, 1, 2, 3))


@pytest.mark.parametrize("number", [0, -1.5, math.nan])
def test_numbers_are_above_0(number: float) -> None:
    check_positive("f", {"batch": 1, "sequence": 0.5})
    with pytest.raises(ValueError, match=f"^f: sequence is {number}; use a number above 0$"):
        check_positive("f", {"batch": 1, "sequence": number})
