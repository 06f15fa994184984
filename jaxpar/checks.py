"""Checks of arguments: a choice among a few values, and numbers above 0."""

from collections.abc import Mapping, Sequence
from typing import Any


def check_one_of(where: str, name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Checks that a value is among those that are allowed.

    Raises:
        ValueError: it is not; the message names those that are.
    """
    if value not in allowed:
        words = ", ".join(map(str, allowed))
        raise ValueError(f"{where}: {name} is {value!r}; use one of {words}")


def check_positive(where: str, numbers: Mapping[str, float]) -> None:
    """Checks that every number is above 0.

    Raises:
        ValueError: one is not; the message gives its name and its value.
    """
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{where}: {name} is {number!r}; use a number above 0")
