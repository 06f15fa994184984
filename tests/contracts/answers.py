"""How an answer in the files beside this one says that it is right; wrong ones use `wrong`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer", bound=Callable)


def right(function: Answer) -> Answer:
    """Marks a right answer by another route than the library's."""
    function.right = True
    return function
