"""Checks of arguments: a choice among a few values, and numbers above 0."""

from collections.abc import Mapping, Sequence
from typing import Any


def check_one_of(where: str, name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raises a ValueError that names what is allowed if `value` is not among it."""
    if value not in allowed:
        words = ", ".join(map(str, allowed))
        raise ValueError(f"{where}: {name} is {value!r}; use one of {words}")


def check_positive(where: str, numbers: Mapping[str, float]) -> None:
    """Raises a ValueError that names the first number that is not above 0, if there is one."""
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{where}: {name} is {number!r}; use a number above 0")
