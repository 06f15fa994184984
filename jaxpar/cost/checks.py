"""What arguments must be: one of few, or a number above 0."""

from collections.abc import Mapping, Sequence
from typing import Any


def check_one_of(where: str, name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Checks a choice.

    Raises:
        ValueError: it is none of those that are allowed, which the message names.
    """
    if value not in allowed:
        words = ", ".join(map(str, allowed))
        raise ValueError(f"{where}: {name} is {value!r}; use one of {words}")


def check_positive(where: str, numbers: Mapping[str, float]) -> None:
    """Checks numbers by name.

    Raises:
        ValueError: one is not above 0.
    """
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{where}: {name} is {number!r}; use a number above 0")
